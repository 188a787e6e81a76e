//! What people are told about a view.

mod support;

use infini_rearrange::layout::{Diagnosis, Layout};
use support::named;

fn diagnosis(shape: &[usize], strides: &[isize], offset: isize) -> String {
    Layout::new(shape, strides, offset, 2).unwrap().diagnosis().to_string()
}

#[test]
fn of_views_met_in_practice() {
    let cases = [
        ("mla_prefill_k_nope", "columns 0..128 of rows of 192"),
        ("mla_prefill_k_rope", "columns 128..192 of rows of 192"),
        ("mla_prefill_v", "columns 128..256 of rows of 256"),
        ("mla_prefix_chunk_k_rope_expand", "expanded along dim 1 (stride 0)"),
        ("mla_absorbed_transpose", "axes 0 and 2 swapped"),
        ("gqa_qkv_split_k", "columns 4096..5120 of rows of 6144"),
        ("gqa_qkv_split_q_mrope", "columns 0..4096 of rows of 6144"),
        ("mrope_query_inner_strided", "axes 0 and 1 swapped"),
        ("bnsd_query_transposed", "axes 1 and 2 swapped"),
        ("rotary_mul_half_slice", "columns 128..192 of rows of 192"),
        ("kv_rmsnorm_latent_view", "columns 1536..2112 of rows of 2112"),
        ("interleave_q_pe", "columns 128..192 of rows of 192"),
        ("size_one_dim_odd_stride", "contiguous"),
        ("infinilm_unsqueeze_stride0", "contiguous"),
        ("zero_tokens", "contiguous"),
        ("scalar", "contiguous"),
        ("paged_cache_padded_blocks", "rows of 131072 elements padded to 135168"),
        ("swa_prefill_v_slice", "columns 9216..10240 of rows of 10240"),
        ("vision_qkv_unbind", "columns 1280..2560 of rows of 3840"),
        ("dsa_q_pe_half", "columns 64..128 of rows of 128"),
        ("ic_2pow6_reversed", "axes permuted (5, 4, 3, 2, 1, 0)"),
        ("ic_bcast_rows", "expanded along dim 0 (stride 0)"),
        ("ic_kv_slice", "axes 1 and 2 swapped"),
        ("every_other_column", "every 2nd element along dim 1"),
        ("bool_mask_expand", "expanded along dim 0 (stride 0)"),
        ("overlapping_window", "overlapping windows"),
        // Axes of length 1 stay where they are.
        ("nine_dims", "axes permuted (8, 7, 2, 5, 4, 3, 6, 1, 0)"),
    ];
    for (name, expected) in cases {
        assert_eq!(named(name).layout(2).diagnosis().to_string(), expected, "{name}");
    }
}

#[test]
fn of_other_views() {
    assert_eq!(diagnosis(&[32, 1024], &[1056, 1], 0), "rows of 1024 elements padded to 1056");
    assert_eq!(diagnosis(&[32, 512], &[576, 1], 0), "columns 0..512 of rows of 576");
    // The offset does not say where in its row a slice would begin.
    assert_eq!(diagnosis(&[32, 64], &[100, 1], 50), "rows of 64 elements padded to 100");
    assert_eq!(diagnosis(&[32, 64], &[-64, 1], 31 * 64), "reversed along dim 0");
    assert_eq!(diagnosis(&[4, 8], &[-8, -1], 31), "reversed along dims 0, 1");
    assert_eq!(diagnosis(&[2, 3, 4], &[4, 8, 0], 0), "expanded along dim 2 (stride 0)");
    assert_eq!(diagnosis(&[2, 3, 4], &[1, 8, 2], 0), "axes permuted (1, 2, 0)");
    assert_eq!(diagnosis(&[100], &[11], 3), "every 11th element along dim 0");
    assert_eq!(diagnosis(&[100], &[23], 3), "every 23rd element along dim 0");
    assert_eq!(diagnosis(&[100], &[101], 3), "every 101st element along dim 0");
}

#[test]
fn the_order_of_a_transpose_restores_the_memory_order() {
    let layout = Layout::new(&[2, 3, 4], &[1, 8, 2], 0, 4).unwrap();
    let Diagnosis::Transposed { order } = layout.diagnosis() else { panic!("{:?}", layout.diagnosis()) };
    let permute = |of: &[isize]| order.iter().map(|&axis| of[axis]).collect::<Vec<_>>();
    assert_eq!(permute(layout.strides()), [8, 2, 1]);
}

#[test]
fn every_diagnosis_has_a_remedy_in_one_sentence() {
    let all = [
        Diagnosis::Contiguous,
        Diagnosis::Columns { start: 0, end: 1, row: 2 },
        Diagnosis::Transposed { order: vec![1, 0] },
        Diagnosis::Broadcast { dims: vec![0] },
        Diagnosis::EveryNth { dim: 0, step: 3 },
        Diagnosis::Reversed { dims: vec![0] },
        Diagnosis::Rows { len: 1, padded: 2 },
        Diagnosis::Window,
        Diagnosis::Other,
    ];
    let remedies: std::collections::HashSet<String> = all.iter().map(Diagnosis::remedy).collect();
    assert_eq!(remedies.len(), all.len(), "each its own");
    assert!(remedies.iter().all(|remedy| !remedy.ends_with('.') && remedy.len() > 20));
    let slice = Diagnosis::Columns { start: 128, end: 192, row: 192 };
    assert!(slice.remedy().contains("a buffer of its own"));
    assert!(Diagnosis::EveryNth { dim: 0, step: 3 }.remedy().contains("every 3rd"));
}
