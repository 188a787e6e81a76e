use super::Plan;

/// What sort of copy a plan is; the first that fits, in the order given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// No elements: nothing is to be launched.
    Empty,
    /// One run: a plain copy of [`Plan::unit`] bytes.
    Bulk,
    /// Some loop repeats the source (stride 0).
    Broadcast,
    /// Small units (up to [`Kind::SMALL_UNIT`] bytes) that the destination has densely along its innermost loop and the
    /// source, forward, along another one: both sides are read and written well only in tiles.
    Transpose,
    /// Units of more than one element, each a run on both sides.
    Rows,
    /// Single elements by strides that leave no better choice.
    Gather,
}

impl Kind {
    /// The largest unit in bytes that a transpose is worth tiling for: a unit that fills a cache line by itself loses
    /// nothing when moved on its own.
    pub const SMALL_UNIT: usize = 32;

    pub(super) fn of(plan: &Plan) -> Kind {
        if plan.bytes == 0 {
            return Kind::Empty;
        }
        let Some((innermost, outer)) = plan.dims.split_last() else {
            return Kind::Bulk;
        };
        if plan.dims.iter().any(|dim| dim.src == 0) {
            return Kind::Broadcast;
        }
        let unit = plan.unit as isize;
        if plan.unit <= Kind::SMALL_UNIT
            && innermost.dst == unit
            && innermost.src != unit
            && outer.iter().any(|dim| dim.src == unit)
        {
            return Kind::Transpose;
        }
        if plan.unit > plan.element_size { Kind::Rows } else { Kind::Gather }
    }
}
