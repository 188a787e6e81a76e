#include "capture.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#ifdef INFINI_TORCH_NPU
#include <torch_npu/csrc/core/npu/NPUGraphsUtils.h>
#include <torch_npu/csrc/core/npu/NPUStream.h>
#endif

namespace infini {
namespace {

struct Graph {
    std::vector<at::Tensor> kept;
    std::map<int64_t, std::shared_ptr<TaskGroup>> groups;
};

struct Graphs {
    std::mutex mutex;
    std::map<uint64_t, Graph> graphs;
    int64_t next_group = 1;
};

Graphs& graphs() {
    static auto* graphs = new Graphs();  // never destroyed: device memory must not be freed after torch_npu is gone
    return *graphs;
}

// The graph under capture, or 0. One at a time in a process: torch_npu allows no more.
std::atomic<uint64_t> capturing{0};

thread_local std::optional<OpenGroup> group;
thread_local int staged_copies = 0;
thread_local bool prepared = false;

#ifdef INFINI_TORCH_NPU
bool stream_is_capturing() {
    return c10_npu::currentStreamCaptureStatusMayInitCtx() != c10_npu::CaptureStatus::None;
}

int64_t current_stream() {
    return c10_npu::getCurrentNPUStream().id();
}
#else
bool stream_is_capturing() {
    return false;
}

int64_t current_stream() {
    return -1;
}
#endif

}  // namespace

const StagedArgument* CapturedCall::argument(uint32_t position, int64_t element) const {
    for (const StagedArgument& argument : arguments) {
        if (argument.position == position && argument.element == element) {
            return &argument;
        }
    }
    return nullptr;
}

const CapturedCall* OpenGroup::next(const c10::OperatorName& op) {
    for (const CapturedCall& call : group_->calls) {
        if (call.op == op && std::find(found_.begin(), found_.end(), &call) == found_.end()) {
            found_.push_back(&call);
            return &call;
        }
    }
    return nullptr;
}

CapturedCall& OpenGroup::add(const c10::OperatorName& op) {
    return group_->calls.emplace_back(op);
}

OpenGroup* open_group() {
    return group.has_value() && group->stream() == current_stream() ? &*group : nullptr;
}

bool any_capture() {
    return capturing.load(std::memory_order_relaxed) != 0 || stream_is_capturing();
}

Execution execution_of(const at::Tensor& tensor) {
    if (!tensor.is_privateuseone()) {
        return {0, false};
    }
    if (prepared) {
        return {0, true};
    }
    if (const OpenGroup* open = open_group(); open != nullptr && open->updates()) {
        return {0, true};
    }
    const uint64_t graph = capturing.load(std::memory_order_relaxed);
    return {graph != 0 && stream_is_capturing() ? graph : 0, false};
}

void keep_with_graph(uint64_t graph, const at::Tensor& copy) {
    const std::lock_guard<std::mutex> lock(graphs().mutex);
    if (const auto found = graphs().graphs.find(graph); found != graphs().graphs.end()) {
        found->second.kept.push_back(copy);
    }
}

StagedCopies::StagedCopies() {
    ++staged_copies;
}

StagedCopies::~StagedCopies() {
    --staged_copies;
}

void check_copy_outside_group(const at::Tensor& tensor) {
    if (staged_copies > 0 || !tensor.is_privateuseone() || tensor.numel() == 0 || open_group() == nullptr) {
        return;
    }
    TORCH_CHECK(false, "infini::rearrange: a copy of ", tensor.sizes(), " strides ", tensor.strides(),
                " inside a task group goes to memory that a later update of the group cannot find again, and replays "
                "would read it after it was freed: call infini_rearrange.contiguous(x, site) before "
                "graph_task_group_begin, keep the result as long as the graph, and pass it on inside the group");
}

void set_call_prepared(bool now) {
    prepared = now;
}

int64_t capture_begun() {
    const uint64_t graph = graph_begun();
    {
        const std::lock_guard<std::mutex> lock(graphs().mutex);
        graphs().graphs.emplace(graph, Graph{});
    }
    group.reset();
    prepared = false;
    capturing.store(graph);
    return static_cast<int64_t>(graph);
}

namespace {

void no_longer_capturing(uint64_t graph) {
    uint64_t expected = graph;
    if (capturing.compare_exchange_strong(expected, 0)) {
        group.reset();
        prepared = false;
    }
}

}  // namespace

void capture_ended(int64_t graph) {
    no_longer_capturing(graph);
    graph_ended(graph);
}

void capture_released(int64_t graph) {
    no_longer_capturing(graph);
    Graph gone;  // freed after the lock: tensors may run anything
    {
        const std::lock_guard<std::mutex> lock(graphs().mutex);
        if (const auto found = graphs().graphs.find(graph); found != graphs().graphs.end()) {
            gone = std::move(found->second);
            graphs().graphs.erase(found);
        }
    }
    graph_released(graph);
}

void group_begun(int64_t stream) {
    group.emplace(std::make_shared<TaskGroup>(), false, stream);
}

int64_t group_ended() {
    if (!group.has_value()) {
        return 0;
    }
    const std::shared_ptr<TaskGroup> ended = group->group();
    group.reset();
    const std::lock_guard<std::mutex> lock(graphs().mutex);
    const auto found = graphs().graphs.find(capturing.load());
    if (found == graphs().graphs.end()) {
        return 0;
    }
    const int64_t number = graphs().next_group++;
    found->second.groups.emplace(number, ended);
    return number;
}

void update_begun(int64_t stream, int64_t number) {
    auto updated = std::make_shared<TaskGroup>();  // of a group that is not known: no call has a buffer
    {
        const std::lock_guard<std::mutex> lock(graphs().mutex);
        for (const auto& [_, graph] : graphs().graphs) {
            if (const auto found = graph.groups.find(number); found != graph.groups.end()) {
                updated = found->second;
            }
        }
    }
    group.emplace(std::move(updated), true, stream);
    graph_updated();
}

void update_ended() {
    group.reset();
}

}  // namespace infini
