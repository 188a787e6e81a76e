#include "timing.h"

#include <deque>
#include <mutex>
#include <vector>

#include "capture.h"
#include "refusal.h"

#ifdef INFINI_TORCH_NPU
#include <torch_npu/csrc/core/npu/NPUEvent.h>
#include <torch_npu/csrc/core/npu/NPUStream.h>
#endif

namespace infini {

#ifdef INFINI_TORCH_NPU

class EventPair {
public:
    c10_npu::NPUEvent start{ACL_EVENT_TIME_LINE};
    c10_npu::NPUEvent end{ACL_EVENT_TIME_LINE};
    uint32_t timed = 0;
    uint64_t bytes = 0;
    c10::DeviceIndex device = 0;
};

namespace {

// Copies under way that are not looked at yet; more are not timed, so that a process which never collects stays small.
constexpr size_t kPending = 256;
// How many pairs one copy looks at: streams run apart, so that the oldest need not be the first to be complete.
constexpr size_t kLooks = 4;

struct Timings {
    std::mutex mutex;
    std::deque<std::unique_ptr<EventPair>> pending;
    // Creating events is slow; an event belongs to the device that it was first recorded on.
    std::vector<std::unique_ptr<EventPair>> spare;
};

Timings& timings() {
    static auto* timings = new Timings();  // never destroyed: torch_npu may be gone by then
    return *timings;
}

// With the mutex held.
std::unique_ptr<EventPair> take(Timings& all, c10::DeviceIndex device) {
    for (auto spare = all.spare.begin(); spare != all.spare.end(); ++spare) {
        if ((*spare)->device == device) {
            std::unique_ptr<EventPair> pair = std::move(*spare);
            all.spare.erase(spare);
            return pair;
        }
    }
    auto pair = std::make_unique<EventPair>();
    pair->device = device;
    return pair;
}

// With the mutex held.
void collect(Timings& all, size_t looks) {
    for (auto pair = all.pending.begin(); pair != all.pending.end() && looks > 0; --looks) {
        if (!(*pair)->end.query()) {
            ++pair;
            continue;
        }
        copy_timed((*pair)->timed, (*pair)->bytes, reinterpret_cast<size_t>((*pair)->start.event()),
                   reinterpret_cast<size_t>((*pair)->end.event()));
        all.spare.push_back(std::move(*pair));
        pair = all.pending.erase(pair);
    }
}

}  // namespace

CopyTimer::CopyTimer(std::string_view site, const at::Tensor& source) {
    if (!timing() || !source.is_privateuseone() || source.numel() == 0 || any_capture()) {
        return;
    }
    const uint32_t timed = times_next(rust_str(site));
    if (timed == 0) {
        return;
    }
    Timings& all = timings();
    {
        const std::lock_guard<std::mutex> lock(all.mutex);
        collect(all, kLooks);
        if (all.pending.size() >= kPending) {
            return;
        }
        pair_ = take(all, source.device().index());
    }
    pair_->timed = timed;
    pair_->bytes = source.numel() * source.element_size();
    pair_->start.record(c10_npu::getCurrentNPUStream(pair_->device));
}

CopyTimer::~CopyTimer() = default;

void CopyTimer::launched() {
    if (pair_ == nullptr) {
        return;
    }
    pair_->end.record(c10_npu::getCurrentNPUStream(pair_->device));
    Timings& all = timings();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.pending.push_back(std::move(pair_));
}

void collect_times() {
    Timings& all = timings();
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.pending.empty() || any_capture()) {
        return;
    }
    collect(all, all.pending.size());
}

#else

class EventPair {};

CopyTimer::CopyTimer(std::string_view, const at::Tensor&) {}
CopyTimer::~CopyTimer() = default;
void CopyTimer::launched() {}
void collect_times() {}

#endif

}  // namespace infini
