//! Any copy against an element-by-element oracle, with every byte of the destination's storage watched.

#[path = "support/random.rs"]
mod random;
mod support;

use infini_rearrange::{host, plan::Plan};
use proptest::prelude::*;
use random::Copy;
use support::{View, noise, oracle};

/// Storage with room around the view's own, so that a stray write shows.
fn buffer(view: &View, element_size: usize, lead: usize, seed: u64) -> Vec<u8> {
    noise(lead + view.storage_elements * element_size + 40, seed)
}

fn check(copy: &Copy) {
    let Copy { dst, src, element_size, dst_lead, src_lead } = copy;
    let source = buffer(src, *element_size, *src_lead, 1);
    let mut given = buffer(dst, *element_size, *dst_lead, 2);
    let mut expected = given.clone();
    oracle(dst, &mut expected[*dst_lead..], src, &source[*src_lead..], *element_size);

    let plan = Plan::new(&dst.layout(*element_size), &src.layout(*element_size)).unwrap();
    host::run_checked(&plan, &mut given[*dst_lead..], &source[*src_lead..]).unwrap();
    let wrong = given.iter().zip(&expected).position(|(given, expected)| given != expected);
    assert!(wrong.is_none(), "byte {} is wrong; {plan:?}", wrong.unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_as_the_oracle_has_it(copy in random::copies()) {
        check(&copy);
    }

    /// Large enough for whole tiles and their ragged edges, in every element size.
    #[test]
    fn transposes_of_all_sizes(
        rows in 1usize..200, columns in 1usize..200, batch in 1usize..3, unit in 1usize..4, size in 0u32..5,
        gap in 0isize..3, dst_lead in 0usize..17, src_lead in 0usize..17,
    ) {
        prop_assume!(rows * columns * batch * unit < 40_000);
        let shape = [batch, rows, columns, unit];
        let (r, c, u) = (rows as isize, columns as isize, unit as isize);
        let row = r * u + gap;
        let src = View::new(&shape, &[c * row, u, row, 1], 0).fit(1, 2);
        let row = c * u + gap;
        let dst = View::new(&shape, &[r * row, row, u, 1], 0).fit(2, 1);
        check(&Copy { dst, src, element_size: 1 << size, dst_lead, src_lead });
    }
}
