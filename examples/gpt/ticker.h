// Keeps Gloo's loop thread going round while a group connects or closes. Gloo takes a descriptor out of its loop by
// waiting for the loop's next turn, and an idle loop turns every 10 ms: with a few peers that adds up to most of
// the time a group needs to connect. A descriptor that is always readable makes the turns follow one another at once.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <atomic>

namespace gpt {

class Ticker final : public gloo::transport::tcp::Handler {
 public:
  Ticker();
  ~Ticker() override;
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  // To be called once. The device must be gone before the ticker.
  void Start(gloo::transport::tcp::Device& device);
  // Any thread. The loop falls back to its own pace, also by itself after kMaxTicks.
  void Stop();
  void Resume();

  void handleEvents(int events) override;  // Gloo's loop thread

 private:
  static constexpr int kMaxTicks = 10'000;  // a second or so
  int event_ = -1;                          // an eventfd; readable while ticking
  std::atomic<int> left_{0};
};

}  // namespace gpt
