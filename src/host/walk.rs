use crate::plan::Dim;

/// Calls `visit` with the offsets (destination, source) in bytes of every index of `dims`, the last loop the fastest.
#[inline]
pub(super) fn walk(dims: &[Dim], mut visit: impl FnMut(isize, isize)) {
    let mut index = vec![0usize; dims.len()];
    let (mut dst, mut src) = (0isize, 0isize);
    'indices: loop {
        visit(dst, src);
        for (index, dim) in index.iter_mut().zip(dims).rev() {
            if *index + 1 < dim.len {
                *index += 1;
                dst += dim.dst;
                src += dim.src;
                continue 'indices;
            }
            dst -= dim.dst * *index as isize;
            src -= dim.src * *index as isize;
            *index = 0;
        }
        return;
    }
}
