#include "runtime/notes_codec.h"

#include <gtest/gtest.h>

namespace locum {
namespace {

TEST(NotesCodec, Notes_SurviveTheKeeper) {
  node::Notes notes{Term(4), "job", Incarnation(9), {{Incarnation(1), 100, Rank(2)}, {Incarnation(3), 0, kNoRank}}};
  Result<node::Notes> back = DecodeNotes(EncodeNotes(notes));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, notes);
}

TEST(NotesCodec, NoNotes_AreTheNotesOfNobody) {
  Result<node::Notes> back = DecodeNotes("");
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, node::Notes());
}

TEST(NotesCodec, BrokenNotes_AreRejected) {
  std::string bytes = EncodeNotes(node::Notes{Term(4), "job", Incarnation(9), {{Incarnation(1), 100, Rank(2)}}});
  for (size_t size = 1; size < bytes.size(); ++size) EXPECT_FALSE(DecodeNotes(bytes.substr(0, size)).ok()) << size;
  EXPECT_FALSE(DecodeNotes(bytes + "x").ok());
  bytes[0] = 2;
  EXPECT_FALSE(DecodeNotes(bytes).ok());
}

}  // namespace
}  // namespace locum
