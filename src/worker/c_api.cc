// The C functions of include/locum/locum.h. They check arguments, keep exceptions in, and remember the last error
// of each thread.
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <exception>
#include <new>

#include "base/cluster.h"
#include "locum/locum.h"
#include "ports/worker_protocol.h"
#include "worker/fork_guard.h"
#include "worker/worker_job.h"

struct locum_job {
  std::unique_ptr<locum::WorkerJob> job;
};

namespace {

using locum::Code;
using locum::Result;
using locum::Status;

thread_local char last_error[2048] = "";
std::atomic<bool> joined{false};

int CodeOf(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return LOCUM_OK;
    case Code::kInvalid: return LOCUM_E_INVALID;
    case Code::kUnavailable: return LOCUM_E_UNAVAILABLE;
    case Code::kTimeout: return LOCUM_E_TIMEOUT;
    case Code::kRefused: return LOCUM_E_REFUSED;
    case Code::kInterrupted: return LOCUM_E_RECOVERY;
    case Code::kCorrupt:
    case Code::kInternal: return LOCUM_E_INTERNAL;
  }
  return LOCUM_E_INTERNAL;
}

int Answer(const Status& status) {
  if (status.ok()) return LOCUM_OK;
  snprintf(last_error, sizeof last_error, "%s", status.message().c_str());
  return CodeOf(status);
}

// Runs `body`, which returns a Status or a Result<int>, on a job that may be used.
template <class F>
int Call(locum_job* job, F body) {
  try {
    if (locum::InForkedChild()) {
      return Answer(locum::Invalid("a forked child called the worker library; only the process that joined may"));
    }
    if (!job) return Answer(locum::Invalid("job is NULL"));
    return body(*job->job);
  } catch (const std::bad_alloc&) {
    return Answer(locum::Internal("out of memory"));
  } catch (const std::exception& e) {
    return Answer(locum::Internal(e.what()));
  } catch (...) {
    return Answer(locum::Internal("unknown error"));
  }
}

template <class F>
int CallStatus(locum_job* job, F body) {
  return Call(job, [&](locum::WorkerJob& j) { return Answer(body(j)); });
}

Result<locum::JoinParameters> FromEnvironment(const locum_options* options) {
  if (!options || options->struct_size < sizeof(locum_options)) {
    return locum::Invalid("options is NULL, or its struct_size is not set to sizeof(locum_options)");
  }
  const char* socket = getenv(locum::kSocketVariable);
  const char* worker = getenv(locum::kWorkerVariable);
  if (!socket || !*socket) {
    return locum::Unavailable("LOCUM_SOCKET is not set: this process was not started by Locum; start it with "
                              "`locum run -- COMMAND`");
  }
  locum::JoinParameters parameters;
  parameters.socket = socket;
  if (!worker || !locum::ParseHex(worker, &parameters.worker.value) || parameters.worker.value == 0) {
    return locum::Invalid("LOCUM_WORKER is not 16 hexadecimal digits; Locum sets it, do not change it");
  }
  parameters.total_steps = options->total_steps;
  if (options->fingerprint) parameters.fingerprint = options->fingerprint;
  if (options->join_timeout_ms) parameters.timeout = std::chrono::milliseconds(options->join_timeout_ms);
  return parameters;
}

locum::Result<locum::Shard> ShardOf(const char* name, uint64_t bytes, const char* group) {
  if (!name) return locum::Invalid("a shard's name is NULL");
  return locum::Shard{name, bytes, group ? group : locum::kGroupAll};
}

}  // namespace

extern "C" {

const char* locum_last_error(void) { return last_error; }

const char* locum_version(void) { return locum::kVersion; }

int locum_available(void) {
  const char* socket = getenv(locum::kSocketVariable);
  return socket && *socket ? 1 : 0;
}

int locum_join(const locum_options* options, locum_job** job) {
  try {
    if (!job) return Answer(locum::Invalid("job is NULL"));
    *job = nullptr;
    if (locum::InForkedChild()) return Answer(locum::Invalid("a forked child cannot join; the process that was started does"));
    Result<locum::JoinParameters> parameters = FromEnvironment(options);
    if (!parameters.ok()) return Answer(parameters.status());
    if (joined.exchange(true)) return Answer(locum::Invalid("locum_join was called before; a process joins once"));
    auto made = std::make_unique<locum_job>();
    Result<std::unique_ptr<locum::WorkerJob>> result = locum::WorkerJob::Join(*parameters);
    if (!result.ok()) {
      joined = false;
      return Answer(result.status());
    }
    made->job = std::move(*result);
    *job = made.release();
    return LOCUM_OK;
  } catch (const std::exception& e) {
    joined = false;
    return Answer(locum::Internal(e.what()));
  }
}

void locum_leave(locum_job* job) {
  // The threads that would have to be joined are the parent's.
  if (!job || locum::InForkedChild()) return;
  delete job;
}

int locum_register_memory(locum_job* job, const char* name, void* data, uint64_t bytes, const char* group) {
  return CallStatus(job, [&](locum::WorkerJob& j) -> Status {
    Result<locum::Shard> shard = ShardOf(name, bytes, group);
    return shard.ok() ? j.RegisterMemory(*shard, data) : shard.status();
  });
}

int locum_register(locum_job* job, const char* name, uint64_t bytes, locum_read_fn read, locum_write_fn write,
                   void* context, const char* group) {
  return CallStatus(job, [&](locum::WorkerJob& j) -> Status {
    Result<locum::Shard> shard = ShardOf(name, bytes, group);
    return shard.ok() ? j.RegisterCallbacks(*shard, read, write, context) : shard.status();
  });
}

int locum_set_abort(locum_job* job, locum_abort_fn abort, void* context) {
  return CallStatus(job, [&](locum::WorkerJob& j) { return j.SetAbort(abort, context); });
}

int locum_next_step(locum_job* job, locum_step* step) {
  return Call(job, [&](locum::WorkerJob& j) {
    if (!step || step->struct_size < sizeof(locum_step)) {
      return Answer(locum::Invalid("step is NULL, or its struct_size is not set to sizeof(locum_step)"));
    }
    Result<int> more = j.NextStep(step);
    return more.ok() ? *more : Answer(more.status());
  });
}

int locum_connected(locum_job* job) {
  return CallStatus(job, [](locum::WorkerJob& j) { return j.Connected(); });
}

int locum_report_loss(locum_job* job, double loss) {
  return CallStatus(job, [&](locum::WorkerJob& j) { return j.ReportLoss(loss); });
}

int locum_enter_collective(locum_job* job) {
  return CallStatus(job, [](locum::WorkerJob& j) { return j.EnterCollective(); });
}

int locum_broken(locum_job* job, const char* why) {
  return CallStatus(job, [&](locum::WorkerJob& j) { return j.Broken(why ? why : "no reason given"); });
}

int locum_begin_update(locum_job* job) {
  return CallStatus(job, [](locum::WorkerJob& j) { return j.BeginUpdate(); });
}

int locum_end_update(locum_job* job) {
  return CallStatus(job, [](locum::WorkerJob& j) { return j.EndUpdate(); });
}

int locum_fail_update(locum_job* job, const char* why) {
  return CallStatus(job, [&](locum::WorkerJob& j) { return j.FailUpdate(why ? why : "no reason given"); });
}

int locum_stop(locum_job* job) {
  return CallStatus(job, [](locum::WorkerJob& j) { return j.StopHere(); });
}

int locum_finish(locum_job* job) {
  return CallStatus(job, [](locum::WorkerJob& j) { return j.Finish(); });
}

int locum_store_set(locum_job* job, const char* key, const void* value, size_t bytes) {
  return CallStatus(job, [&](locum::WorkerJob& j) -> Status {
    if (!key || (!value && bytes > 0)) return locum::Invalid("key or value is NULL");
    return j.StoreSet(key, std::string(static_cast<const char*>(value), bytes));
  });
}

int locum_store_get(locum_job* job, const char* key, uint32_t timeout_ms, void** value, size_t* bytes) {
  return CallStatus(job, [&](locum::WorkerJob& j) -> Status {
    if (!key || !value || !bytes) return locum::Invalid("key, value or bytes is NULL");
    *value = nullptr;
    *bytes = 0;
    Result<std::string> found = j.StoreGet(key, std::chrono::milliseconds(timeout_ms));
    if (!found.ok()) return found.status();
    *value = malloc(found->size() ? found->size() : 1);
    if (!*value) return locum::Internal("out of memory");
    memcpy(*value, found->data(), found->size());
    *bytes = found->size();
    return locum::OkStatus();
  });
}

void locum_free(void* memory) { free(memory); }

const char* locum_address(const locum_job* job) { return job ? job->job->welcome().address.c_str() : ""; }

uint64_t locum_seed(const locum_job* job) { return job ? job->job->welcome().seed : 0; }

}  // extern "C"
