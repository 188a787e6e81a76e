// PyPI's x86_64 torch is a CUDA build, whose CUDA half has registered the allocator setting
// "pinned_reserve_segment_size_mb" by the time torch_npu registers it too and torch ends the process with
// "Duplicated key". This library is loaded between the two, because torch_npu needs it by name (libge_runner.so): its
// constructor takes away every key that torch itself did not come with. Without a CUDA half there is nothing to take
// away.
#if __has_include(<c10/core/AllocatorConfig.h>)
#include <c10/core/AllocatorConfig.h>

namespace {

// getMutableKeys is protected; a class derived from its owner may call it.
struct Keys : c10::CachingAllocator::AcceleratorAllocatorConfig {
    static void reset() {
        static const char* const own[] = {
            "max_split_size_mb",        "max_non_split_rounding_mb", "garbage_collection_threshold",
            "roundup_power2_divisions", "expandable_segments",       "pinned_use_background_threads"};
        auto& keys = getMutableKeys();
        keys.clear();
        keys.insert(std::begin(own), std::end(own));
    }
};

__attribute__((constructor)) void reset_allocator_keys() {
    Keys::reset();
}

}  // namespace
#endif
