// Device time of sampled copies (INFINI_PROFILE=time), by pairs of events around them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

namespace infini {

class EventPair;

// Around the launch of one copy at a site. Does nothing where the copy is not to be timed: another mode, not sampled,
// not on an NPU, or a graph is being captured anywhere.
class CopyTimer {
public:
    CopyTimer(std::string_view site, const at::Tensor& source);
    ~CopyTimer();
    CopyTimer(const CopyTimer&) = delete;
    CopyTimer& operator=(const CopyTimer&) = delete;

    // The copy has been launched.
    void launched();

private:
    std::unique_ptr<EventPair> pair_;
};

// Counts the copies whose events are complete. Waits for nothing, and reads no event while a graph is being captured.
void collect_times();

}  // namespace infini
