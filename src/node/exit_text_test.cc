#include "node/exit_text.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace locum {
namespace {

TEST(DescribeEnd, Status_IsNamedAsNumber) { EXPECT_EQ(DescribeEnd({3, 0}), "exit status 3"); }

TEST(DescribeEnd, Signal_IsNamed) {
  EXPECT_EQ(DescribeEnd({0, SIGSEGV}), "killed by SIGSEGV");
  EXPECT_EQ(DescribeEnd({0, 40}), "killed by signal 40");
}

TEST(PrintableTail, ShortText_IsKept) { EXPECT_EQ(PrintableTail("a\tb\nc\n", 100), "a\tb\nc\n"); }

TEST(PrintableTail, LongText_IsCutAtTheFront) { EXPECT_EQ(PrintableTail("abcdef", 3), "def"); }

TEST(PrintableTail, CutInsideACharacter_DropsItWhole) {
  EXPECT_EQ(PrintableTail("x\xe2\x82\xac!", 2), "!");  // two bytes of the euro sign fall away
  EXPECT_EQ(PrintableTail("x\xe2\x82\xac!", 4), "\xe2\x82\xac!");
}

TEST(PrintableTail, BytesThatAreNoText_BecomeQuestionMarks) {
  EXPECT_EQ(PrintableTail(std::string("a\0b\x1b[1m\r", 8), 100), "a?b?[1m?");
  EXPECT_EQ(PrintableTail("\xff\xfe", 100), "??");
  EXPECT_EQ(PrintableTail("\xc0\xaf", 100), "??");            // overlong
  EXPECT_EQ(PrintableTail("\xed\xa0\x80", 100), "???");       // a surrogate
  EXPECT_EQ(PrintableTail("\xf4\x90\x80\x80", 100), "????");  // beyond the last code point
  EXPECT_EQ(PrintableTail("ab\xe2\x82", 100), "ab??");        // cut off at the end
}

}  // namespace
}  // namespace locum
