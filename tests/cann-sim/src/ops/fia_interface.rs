//! The C functions of FusedInferAttentionScore, versions 2 to 5: long parameter lists, one meaning.

use super::fia::{Call, prepare};
use super::glue::refused;
use crate::operators;
use std::ffi::{CStr, c_char};

type Text = *const c_char;

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: Text) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares one version: the parameters that versions have in common, and in brackets what this one has of its own, behind
/// the shared prefix and behind the key and value modes. `…GetMaxWorkspaceSize` takes the same parameters and prepares no launch.
macro_rules! fused {
    ($name:ident, $first:ident, $max:ident, rope: $rope:expr, sink: $sink:expr, also: [$(($also:literal, $given:expr)),*],
     [$($own:ident: $kind:ident),*], [$($mode:ident: $mode_kind:ident),*]) => {
        operators! {
            $name, $first(
                query: T, key: TL, value: TL, pse_shift: MaybeT, mask: MaybeT, query_lengths: IA, key_lengths: IA,
                deq_scale1: MaybeT, quant_scale1: MaybeT, deq_scale2: MaybeT, quant_scale2: MaybeT, quant_offset2: MaybeT,
                antiquant_scale: MaybeT, antiquant_offset: MaybeT, block_table: MaybeT, query_padding: MaybeT,
                kv_padding: MaybeT, key_antiquant_scale: MaybeT, key_antiquant_offset: MaybeT,
                value_antiquant_scale: MaybeT, value_antiquant_offset: MaybeT, key_prefix: MaybeT, value_prefix: MaybeT,
                prefix_lengths: IA, $($own: $kind,)* heads: i64, scale: f64, pre_tokens: i64, next_tokens: i64,
                layout: Text, key_heads: i64, sparse_mode: i64, inner_precise: i64, block_size: i64,
                antiquant_mode: i64, with_lse: bool, key_antiquant_mode: i64, value_antiquant_mode: i64,
                $($mode: $mode_kind,)* out: T, lse: MaybeT,
            ) {
                let _ = (inner_precise, antiquant_mode, key_antiquant_mode, value_antiquant_mode, prefix_lengths);
                let ([Some(key)], [Some(value)]) = (&key[..], &value[..]) else {
                    return refused("key and value must be lists of one tensor; a tensor per sequence is not simulated");
                };
                let (key, value) = (key.clone(), value.clone());
                let (query_rope, key_rope) = $rope;
                prepare(
                    Call {
                        operator: "FusedInferAttentionScore",
                        query, key, value, query_rope, key_rope, pse_shift, mask, block_table,
                        sink: $sink,
                        scales: [
                            ("key_antiquant_scale", key_antiquant_scale.clone()),
                            ("value_antiquant_scale", value_antiquant_scale.clone()),
                        ],
                        query_lengths, key_lengths, heads, key_heads,
                        scale: scale as f32,
                        pre_tokens, next_tokens,
                        // SAFETY: torch_npu passes a C string or null.
                        layout: unsafe { text(layout) },
                        sparse_mode, block_size, with_lse, out, lse,
                    },
                    &[
                        ("deqScale1", deq_scale1.is_some()),
                        ("quantScale1", quant_scale1.is_some()),
                        ("deqScale2", deq_scale2.is_some()),
                        ("quantScale2", quant_scale2.is_some()),
                        ("quantOffset2", quant_offset2.is_some()),
                        ("antiquantScale", antiquant_scale.is_some()),
                        ("antiquantOffset", antiquant_offset.is_some()),
                        ("queryPaddingSize", query_padding.is_some()),
                        ("kvPaddingSize", kv_padding.is_some()),
                        ("keyAntiquantScale", key_antiquant_scale.is_some()),
                        ("keyAntiquantOffset", key_antiquant_offset.is_some()),
                        ("valueAntiquantScale", value_antiquant_scale.is_some()),
                        ("valueAntiquantOffset", value_antiquant_offset.is_some()),
                        ("keySharedPrefix", key_prefix.is_some()),
                        ("valueSharedPrefix", value_prefix.is_some()),
                        $(($also, $given),)*
                    ],
                )
            }
        }

        /// As the first phase, for the largest workspace that any lengths could need. Nothing is left to launch.
        ///
        /// # Safety
        /// As for the first phase.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $max(
            query: T, key: T, value: T, pse_shift: T, mask: T, query_lengths: T, key_lengths: T, deq_scale1: T,
            quant_scale1: T, deq_scale2: T, quant_scale2: T, quant_offset2: T, antiquant_scale: T, antiquant_offset: T,
            block_table: T, query_padding: T, kv_padding: T, key_antiquant_scale: T, key_antiquant_offset: T,
            value_antiquant_scale: T, value_antiquant_offset: T, key_prefix: T, value_prefix: T, prefix_lengths: T,
            $($own: T,)* heads: i64, scale: f64, pre_tokens: i64, next_tokens: i64, layout: Text, key_heads: i64,
            sparse_mode: i64, inner_precise: i64, block_size: i64, antiquant_mode: i64, with_lse: bool,
            key_antiquant_mode: i64, value_antiquant_mode: i64, $($mode: i64,)* out: T, lse: T,
            workspace: *mut u64, executor: *mut T,
        ) -> i32 {
            // SAFETY: the caller's promises are those of the first phase.
            let code = unsafe {
                $first(
                    query, key, value, pse_shift, mask, query_lengths, key_lengths, deq_scale1, quant_scale1, deq_scale2,
                    quant_scale2, quant_offset2, antiquant_scale, antiquant_offset, block_table, query_padding,
                    kv_padding, key_antiquant_scale, key_antiquant_offset, value_antiquant_scale,
                    value_antiquant_offset, key_prefix, value_prefix, prefix_lengths, $($own,)* heads, scale,
                    pre_tokens, next_tokens, layout, key_heads, sparse_mode, inner_precise, block_size,
                    antiquant_mode, with_lse, key_antiquant_mode, value_antiquant_mode, $($mode,)* out, lse, workspace,
                    executor.cast(),
                )
            };
            if code == 0 {
                // SAFETY: the first phase has just written it.
                crate::executor::drop_executor(unsafe { *executor });
            }
            code
        }
    };
}

type T = *const std::ffi::c_void;

fused!(aclnnFusedInferAttentionScoreV2, aclnnFusedInferAttentionScoreV2GetWorkspaceSize,
       aclnnFusedInferAttentionScoreV2GetMaxWorkspaceSize, rope: (None, None), sink: None, also: [], [], []);

fused!(aclnnFusedInferAttentionScoreV3, aclnnFusedInferAttentionScoreV3GetWorkspaceSize,
       aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize, rope: (query_rope, key_rope), sink: None,
       also: [("keyRopeAntiquantScale", key_rope_scale.is_some())],
       [query_rope: MaybeT, key_rope: MaybeT, key_rope_scale: MaybeT], []);

fused!(aclnnFusedInferAttentionScoreV4, aclnnFusedInferAttentionScoreV4GetWorkspaceSize,
       aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize, rope: (query_rope, key_rope), sink: sink,
       also: [("keyRopeAntiquantScale", key_rope_scale.is_some()), ("dequantScaleQuery", query_scale.is_some()),
              ("queryQuantMode", query_quant_mode != 0)],
       [query_rope: MaybeT, key_rope: MaybeT, key_rope_scale: MaybeT, query_scale: MaybeT, sink: MaybeT],
       [query_quant_mode: i64]);

fused!(aclnnFusedInferAttentionScoreV5, aclnnFusedInferAttentionScoreV5GetWorkspaceSize,
       aclnnFusedInferAttentionScoreV5GetMaxWorkspaceSize, rope: (query_rope, key_rope), sink: sink,
       also: [("keyRopeAntiquantScale", key_rope_scale.is_some()), ("dequantScaleQuery", query_scale.is_some()),
              ("queryQuantMode", query_quant_mode != 0), ("pseType", pse_type > 1),
              ("qStartIdx", !query_start.is_empty()), ("kvStartIdx", !key_start.is_empty())],
       [query_rope: MaybeT, key_rope: MaybeT, key_rope_scale: MaybeT, query_scale: MaybeT, sink: MaybeT,
        query_start: IA, key_start: IA],
       [query_quant_mode: i64, pse_type: i64]);
