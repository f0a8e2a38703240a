#include "group.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/transport/tcp/device.h>

#include <array>
#include <condition_variable>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "mesh.h"
#include "ticker.h"

namespace gpt {
namespace {

// Gloo waits for a connection five times as long as a context's time-out.
constexpr int kGlooConnectFactor = 5;

std::shared_ptr<gloo::transport::Device> CreateDevice(const std::string& address) {
  gloo::transport::tcp::attr attr;
  attr.hostname = address;
  attr.ai_family = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  return gloo::transport::tcp::CreateDevice(attr);
}

}  // namespace

// Owned by the group and by the lane's thread.
struct Group::Lane {
  explicit Lane(GroupOptions o) : options(std::move(o)) {}
  // Taking Gloo apart waits for its loop thread, which is nothing for whoever happens to be the last owner.
  ~Lane() {
    if (!gloo) return;
    try {
      std::thread([parts = std::move(gloo)]() mutable { parts.reset(); }).detach();
    } catch (const std::exception&) {  // no thread to be had: `parts` is destroyed here after all
    }
  }

  const GroupOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void(Lane&)> work;  // set: the thread has something to do, or is doing it
  bool quit = false;
  bool aborted = false;
  bool failed = false;
  bool connected = false;  // every rank has all its connections
  std::string why;

  // Destroyed from the last to the first: the mesh before the device, whose loop thread must be gone before the ticker
  // that it calls.
  struct Gloo {
    Ticker ticker;
    std::shared_ptr<gloo::transport::Device> device;
    std::shared_ptr<Mesh> mesh;
    ~Gloo() { ticker.Resume(); }
  };
  std::shared_ptr<Gloo> gloo;  // set once, under `mutex`, before the first use
};

Group::Group(GroupOptions options) : options_(std::move(options)) {}

Group::~Group() { DropLane(true); }

// A lane that is idle ends by itself, one that is stuck is left behind; a new group waits for neither.
void Group::DropLane(bool wait_if_idle) {
  std::shared_ptr<Lane> lane;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lane = std::move(lane_);
  }
  if (!lane) return;
  bool idle;
  {
    std::lock_guard<std::mutex> lock(lane->mutex);
    lane->quit = true;
    idle = !lane->work;
  }
  lane->changed.notify_all();
  if (idle && wait_if_idle) {
    thread_.join();
    lane->gloo.reset();
  } else {
    thread_.detach();
  }
}

void Group::Serve(const std::shared_ptr<Lane>& lane) noexcept {
  std::unique_lock<std::mutex> lock(lane->mutex);
  for (;;) {
    lane->changed.wait(lock, [&] { return lane->quit || lane->work; });
    if (!lane->work) return;
    lock.unlock();
    std::string why;
    try {
      lane->work(*lane);
    } catch (const std::exception& e) {
      why = e.what();
      if (why.empty()) why = "Gloo gave no reason";
    }
    lock.lock();
    lane->work = nullptr;  // gives up the buffers
    if (!why.empty()) {
      lane->failed = true;
      lane->why = std::move(why);
    }
    lane->changed.notify_all();
  }
}

template <class Work>
bool Group::Run(Work work, std::chrono::milliseconds limit, std::string* why) {
  Lane& lane = *lane_;
  std::unique_lock<std::mutex> lock(lane.mutex);
  if (!lane.aborted && !lane.failed) {
    lane.work = std::move(work);
    lane.changed.notify_all();
    const bool over = lane.changed.wait_for(lock, limit, [&] { return lane.aborted || lane.failed || !lane.work; });
    if (!over) {
      lane.failed = true;
      lane.why = "no end after " + std::to_string(limit.count()) + " ms";
    }
  }
  if (lane.failed) *why = lane.why;
  if (lane.aborted) *why = "aborted";
  return !lane.aborted && !lane.failed;
}

void Group::ConnectLane(Lane& lane, const std::shared_ptr<gloo::rendezvous::Store>& store, int rank, int size,
                        const Agreed& agreed) {
  auto parts = std::make_shared<Lane::Gloo>();
  parts->device = CreateDevice(lane.options.address);
  parts->ticker.Start(static_cast<gloo::transport::tcp::Device&>(*parts->device));
  parts->mesh = std::make_shared<Mesh>(rank, size, parts->device, lane.options.connect_timeout / kGlooConnectFactor);
  Mesh& mesh = *parts->mesh;
  {
    std::lock_guard<std::mutex> lock(lane.mutex);
    lane.gloo = parts;
    if (lane.aborted) return;
  }
  mesh.Connect(*store);
  parts->ticker.Stop();

  // Once this is over every rank has all its connections at both ends. Before, none may be reset: Gloo's loop thread
  // takes a connection that was reset between accepting and looking at it for a bug, and ends the process. So an abort
  // closes the connections of a lane only when it is `connected`; one that is not is left to itself and its time-outs.
  const std::array<uint64_t, 4> mine = {static_cast<uint64_t>(size), agreed.generation, agreed.step, agreed.state_hash};
  std::vector<uint64_t> all(mine.size() * size);
  gloo::AllgatherOptions options(parts->mesh);
  options.setInput(const_cast<uint64_t*>(mine.data()), mine.size());
  options.setOutput(all.data(), all.size());
  options.setTimeout(lane.options.connect_timeout);
  gloo::allgather(options);
  for (int peer = 0; peer < size; peer++) {
    const uint64_t* theirs = &all[mine.size() * peer];
    for (size_t i = 0; i < mine.size(); i++) {
      if (theirs[i] == mine[i]) continue;
      static const char* const kWhat[] = {"world size", "generation", "step", "state hash"};
      throw std::runtime_error("rank " + std::to_string(peer) + " is at " + kWhat[i] + " " + std::to_string(theirs[i]) +
                               ", rank " + std::to_string(rank) + " at " + std::to_string(mine[i]));
    }
  }
  std::lock_guard<std::mutex> lock(lane.mutex);
  lane.connected = true;
}

bool Group::Connect(std::shared_ptr<gloo::rendezvous::Store> store, int rank, int size, const Agreed& agreed,
                    std::string* why) {
  DropLane(false);
  auto lane = std::make_shared<Lane>(options_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    lane->aborted = aborted_;
    lane_ = lane;
  }
  thread_ = std::thread([lane] { Serve(lane); });
  return Run([=](Lane& l) { ConnectLane(l, store, rank, size, agreed); }, options_.connect_timeout * 2, why);
}

bool Group::AllReduceSum(std::shared_ptr<float> values, size_t count, std::string* why) {
  if (!lane_) {
    *why = "not connected";
    return false;
  }
  return Run(
      [values = std::move(values), count](Lane& lane) {
        gloo::AllreduceOptions options(lane.gloo->mesh);
        options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
        options.setOutput(values.get(), count);
        options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        options.setTimeout(lane.options.collective_timeout);
        gloo::allreduce(options);
      },
      options_.collective_timeout * 2, why);
}

void Group::Abort() noexcept {
  std::shared_ptr<Lane> lane;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    lane = lane_;
  }
  if (!lane) return;
  std::shared_ptr<Lane::Gloo> parts;
  bool close;
  {
    std::lock_guard<std::mutex> lock(lane->mutex);
    if (lane->aborted) return;
    lane->aborted = true;
    parts = lane->gloo;
    close = lane->connected;
  }
  lane->changed.notify_all();
  if (!parts) return;
  parts->mesh->Break();
  if (!close) return;
  // Tells the peers. Waits for Gloo's loop thread, so it is nothing for the thread that called.
  try {
    std::thread([parts] {
      try {
        parts->ticker.Resume();
        parts->mesh->closeConnections();
        parts->ticker.Stop();
      } catch (const std::exception&) {  // already closed
      }
    }).detach();
  } catch (const std::exception&) {  // no thread to be had: the connections end with the abandoned lane
  }
}

void Group::Rearm() {
  std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = false;
}

}  // namespace gpt
