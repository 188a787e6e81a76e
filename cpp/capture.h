// Graph capture: which graph a call is captured into, and the task group it stands in.
//
// torch_npu has no way to ask for either, so the Python package reports begin and end of captures, groups and updates.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/operator_name.h>

#include <memory>
#include <string>
#include <vector>

#include "arguments.h"

namespace infini {

// The buffer that an argument's copy goes to, in every replay and update of its group.
struct Staging {
    at::Tensor buffer;
    Action action;
    uint32_t site;
};

// An argument that gets a staging buffer: where it stands in the call, and the layout its copy was captured with.
struct StagedArgument {
    uint32_t position;
    int64_t element;
    size_t staging;
    std::vector<int64_t> strides;
};

// A call of a hooked operator inside a task group.
struct CapturedCall {
    explicit CapturedCall(c10::OperatorName of) : op(std::move(of)) {}

    c10::OperatorName op;
    std::vector<Staging> stagings;
    std::vector<StagedArgument> arguments;

    // The staged argument at a place of the call, or nullptr.
    const StagedArgument* argument(uint32_t position, int64_t element) const;
};

// The calls of a task group in their order. Lives as long as its graph.
struct TaskGroup {
    std::vector<CapturedCall> calls;
};

// The task group that this thread has open on the current stream.
class OpenGroup {
public:
    OpenGroup(std::shared_ptr<TaskGroup> group, bool update, int64_t stream)
        : group_(std::move(group)), update_(update), stream_(stream) {}

    bool updates() const { return update_; }
    int64_t stream() const { return stream_; }
    const std::shared_ptr<TaskGroup>& group() const { return group_; }

    // The next captured call of this operator while updating; nullptr where there is none.
    const CapturedCall* next(const c10::OperatorName& op);
    // Adds a call while capturing.
    CapturedCall& add(const c10::OperatorName& op);

private:
    std::shared_ptr<TaskGroup> group_;
    bool update_;
    int64_t stream_;
    // Calls of the group found again so far.
    std::vector<const CapturedCall*> found_;
};

// nullptr outside groups, which is nearly always.
OpenGroup* open_group();

// Whether a graph is being captured, by whichever thread, or on the current stream by whoever did not report it.
bool any_capture();

// How a call on this tensor will run.
Execution execution_of(const at::Tensor& tensor);

// Keeps a copy alive as long as the graph that is being captured.
void keep_with_graph(uint64_t graph, const at::Tensor& copy);

// While one lives, copies inside a group are those of the hook, which finds their buffers again.
class StagedCopies {
public:
    StagedCopies();
    ~StagedCopies();
    StagedCopies(const StagedCopies&) = delete;
    StagedCopies& operator=(const StagedCopies&) = delete;
};

// Refuses a copy inside a group that an update could not find again.
void check_copy_outside_group(const at::Tensor& tensor);

// Says that the call this thread makes next was decided and counted before its group opened (see prepared.h).
void set_call_prepared(bool prepared);

// What the Python package reports. Streams by torch's stream id; groups by a number that is never 0.
int64_t capture_begun();
void capture_ended(int64_t graph);
void capture_released(int64_t graph);
void group_begun(int64_t stream);
int64_t group_ended();
void update_begun(int64_t stream, int64_t group);
void update_ended();

}  // namespace infini
