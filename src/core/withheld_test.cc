#include "core/withheld.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace locum {
namespace {

using ::testing::ElementsAre;

Persist State(uint64_t generation) {
  PersistentState state;
  state.generation = Generation(generation);
  return {std::make_shared<const PersistentState>(state)};
}
SendOrder Order(StreamId stream, uint64_t sequence) {
  SendOrder order{stream, {}};
  order.order.sequence = sequence;
  return order;
}
Note Named(const std::string& name) {
  Note note;
  note.name = name;
  return note;
}

std::vector<std::string> Texts(const std::vector<WithheldAction>& actions) {
  std::vector<std::string> out;
  for (const WithheldAction& a : actions) {
    if (auto* order = std::get_if<SendOrder>(&a.action))
      out.push_back("order " + std::to_string(order->stream) + "." + std::to_string(order->order.sequence));
    if (auto* welcome = std::get_if<SendWelcome>(&a.action))
      out.push_back("welcome " + std::to_string(welcome->stream));
    if (auto* refuse = std::get_if<RefuseNode>(&a.action)) out.push_back("refuse " + std::to_string(refuse->stream));
    if (auto* note = std::get_if<Note>(&a.action)) out.push_back(note->name);
    if (auto* answer = std::get_if<Answer>(&a.action)) out.push_back("answer " + std::to_string(answer->request));
    if (std::get_if<EndJob>(&a.action)) out.push_back("end");
  }
  return out;
}

TEST(Withheld, OrdersOfAStream_OnlyTheNewestIsKept) {
  Withheld withheld;
  withheld.Take(State(1), Time{1});
  withheld.Take(Order(1, 1), Time{1});
  withheld.Take(Order(2, 2), Time{1});
  withheld.Take(Named("a"), Time{2});
  withheld.Take(State(2), Time{3});
  withheld.Take(Order(1, 3), Time{3});
  withheld.Take(Answer{7, {}}, Time{4});
  EXPECT_EQ(withheld.state()->generation, Generation(2));
  EXPECT_THAT(Texts(withheld.Release()), ElementsAre("order 2.2", "a", "order 1.3", "answer 7"));
  EXPECT_FALSE(withheld.waits());
}

TEST(Withheld, RefusedOrLostStream_GetsNoOrder) {
  Withheld withheld;
  withheld.Take(State(1), Time{1});
  withheld.Take(SendWelcome{1, {}}, Time{1});
  withheld.Take(Order(1, 1), Time{1});
  withheld.Take(Order(2, 2), Time{1});
  withheld.Take(RefuseNode{1, "why"}, Time{1});
  withheld.Forget(2);
  EXPECT_THAT(Texts(withheld.Release()), ElementsAre("refuse 1"));
}

TEST(Withheld, TooManyNotes_TheOldestGoAndThatIsSaid) {
  Withheld withheld;
  withheld.Take(State(1), Time{1});
  for (size_t i = 0; i < kMaxWithheldNotes + 3; ++i) withheld.Take(Named(std::to_string(i)), Time{1});
  withheld.Take(EndJob{0, ""}, Time{2});
  auto out = withheld.Release();
  ASSERT_EQ(out.size(), kMaxWithheldNotes + 2);
  const Note* first = std::get_if<Note>(&out.front().action);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->name, "events_dropped");
  EXPECT_THAT(first->figures, ElementsAre(std::pair<std::string, int64_t>("events", 3)));
  EXPECT_EQ(std::get<Note>(out[1].action).name, "3");
  EXPECT_TRUE(std::holds_alternative<EndJob>(out.back().action));
}

}  // namespace
}  // namespace locum
