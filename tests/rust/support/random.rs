//! Random pairs of views for proptest.

use super::View;
use proptest::prelude::*;

/// A copy: two views of one shape, an element size and how far each base is off alignment, in bytes.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "only running a copy needs bases")]
pub struct Copy {
    pub dst: View,
    pub src: View,
    pub element_size: usize,
    pub dst_lead: usize,
    pub src_lead: usize,
}

/// How one dimension is laid out.
#[derive(Clone, Debug)]
struct Axis {
    len: usize,
    /// The dimension with the smallest number is the innermost in memory.
    dst_order: u8,
    src_order: u8,
    dst_gap: isize,
    src_gap: isize,
    dst_reversed: bool,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Forward,
    Reversed,
    Broadcast,
    /// This stride, whatever lies inside: windows and clashes.
    Any(isize),
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0usize), 6 => Just(1), 8 => Just(2), 8 => Just(3), 6 => 4usize..10, 5 => 15usize..80]
}

/// Mostly none, as real tensors are mostly dense and only dense ones merge.
fn gap() -> impl Strategy<Value = isize> {
    prop_oneof![5 => Just(0isize), 1 => 1isize..4, 1 => Just(16isize)]
}

fn order() -> impl Strategy<Value = u8> {
    0u8..10
}

fn axis() -> impl Strategy<Value = Axis> {
    let source = prop_oneof![
        8 => Just(Source::Forward),
        1 => Just(Source::Reversed),
        2 => Just(Source::Broadcast),
        1 => (-3isize..9).prop_map(Source::Any),
    ];
    (len(), order(), order(), gap(), gap(), prop::bool::weighted(0.1), source).prop_map(
        |(len, dst_order, src_order, dst_gap, src_gap, dst_reversed, source)| Axis {
            len,
            dst_order,
            src_order,
            dst_gap,
            src_gap,
            dst_reversed,
            source,
        },
    )
}

fn strides(
    axes: &[Axis],
    order: fn(&Axis) -> u8,
    gap: fn(&Axis) -> isize,
    signed: fn(&Axis, isize) -> isize,
) -> Vec<isize> {
    let mut places: Vec<usize> = (0..axes.len()).rev().collect();
    places.sort_by_key(|&place| order(&axes[place]));
    let mut strides = vec![0; axes.len()];
    let mut extent: isize = 1;
    for place in places {
        let axis = &axes[place];
        let stride = extent + gap(axis);
        strides[place] = signed(axis, stride);
        if axis.len > 1 {
            extent = stride * axis.len as isize;
        }
    }
    strides
}

/// Copies of rank 0 to 8 with up to a few thousand elements, destinations that never overlap themselves, and sources of
/// all sorts. Half of each side's dimensions lie in the order of the indices, so that much merges.
pub fn copies() -> impl Strategy<Value = Copy> {
    let bases = (0usize..17, 0usize..17);
    let room = (0usize..4, 0usize..4, 0usize..4, 0usize..4);
    (prop::collection::vec(axis(), 0..=8), any::<bool>(), any::<bool>(), 0u32..5, bases, room).prop_map(
        |(mut axes, dst_in_order, src_in_order, size, (dst_lead, src_lead), (a, b, c, d))| {
            // Keep it small from the outside in.
            let mut numel = 1;
            for axis in &mut axes {
                if numel * axis.len.max(1) > 12_000 {
                    axis.len = 2.min(axis.len);
                }
                numel *= axis.len.max(1);
            }
            let shape: Vec<usize> = axes.iter().map(|axis| axis.len).collect();
            let dst_order: fn(&Axis) -> u8 = if dst_in_order { |_| 0 } else { |axis| axis.dst_order };
            let src_order: fn(&Axis) -> u8 = if src_in_order { |_| 0 } else { |axis| axis.src_order };
            let dst = strides(
                &axes,
                dst_order,
                |axis| axis.dst_gap,
                |axis, stride| {
                    if axis.dst_reversed { -stride } else { stride }
                },
            );
            let src = strides(
                &axes,
                src_order,
                |axis| axis.src_gap,
                |axis, stride| match axis.source {
                    Source::Forward => stride,
                    Source::Reversed => -stride,
                    Source::Broadcast => 0,
                    Source::Any(any) => any,
                },
            );
            Copy {
                dst: View::strided(&shape, dst).fit(a, b),
                src: View::strided(&shape, src).fit(c, d),
                element_size: 1 << size,
                dst_lead,
                src_lead,
            }
        },
    )
}

impl View {
    /// Not yet moved to where it fits.
    fn strided(shape: &[usize], strides: Vec<isize>) -> View {
        View { name: String::new(), shape: shape.to_vec(), strides, offset: 0, storage_elements: 0 }
    }
}
