#!/usr/bin/python3
"""Runs the gpt program as a person would, without Locum.  usage: gpt_test.py GPT_PROGRAM TEXT"""
import re
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

GPT = TEXT = None
FINAL = re.compile(r"^final step=(\d+) loss=([0-9.e+-]+) state=([0-9a-f]{16})$")


def command(*flags):
    return [GPT, "--data", TEXT, *flags]


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("LOCUM_")}


def run(*flags):
    return subprocess.run(command(*flags), capture_output=True, text=True, timeout=240, env=environment(), check=False)


def final(output):
    lines = output.splitlines()
    assert sum(line.startswith("final ") for line in lines) == 1, output
    return FINAL.match(lines[-1])


class Alone(unittest.TestCase):
    def test_short_run_learns_more_than_byte_frequencies(self):
        done = run("--steps", "60")
        self.assertEqual(done.returncode, 0, done.stderr)
        loss, entropy = map(float, re.search(r"held-out loss ([0-9.]+) .* alone: ([0-9.]+) ", done.stdout).groups())
        self.assertLess(loss, entropy - 0.2)
        self.assertGreater(entropy, 1)
        self.assertEqual(final(done.stdout)[1], "60")
        self.assertAlmostEqual(float(final(done.stdout)[2]), loss, places=3)
        self.assertIn("sample:\nAnd the LORD said ", done.stdout)

    def test_same_flags_give_the_same_bits_and_another_seed_gives_others(self):
        first, again, other = (final(run("--steps", "4", "--seed", seed).stdout)[0] for seed in ("7", "7", "8"))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_bad_flags_are_refused_with_what_is_wrong(self):
        for flags, words in [
            (["--preset", "huge"], "tiny, small, medium, large"),
            (["--steps", "0"], "--steps takes a whole number"),
            (["--steps", "x"], "not 'x'"),
            (["--batch"], "'--batch' lacks a value"),
            (["--colour", "red"], "no flag '--colour'"),
            (["--world", "2"], "needs --rendezvous"),
            (["--world", "2", "--rank", "2"], "--rank must be below --world"),
        ]:
            done = run(*flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(words, done.stderr)

    def test_text_that_cannot_be_used_is_refused_by_name(self):
        with tempfile.NamedTemporaryFile() as short:
            for path, words in [("/nonexistent/text", "No such file"), (short.name, "too few")]:
                done = run("--data", path)
                self.assertEqual(done.returncode, 1)
                self.assertIn(path, done.stderr)
                self.assertIn(words, done.stderr)


class Several(unittest.TestCase):
    def setUp(self):
        self.ranks = []

    def tearDown(self):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.communicate()

    def start(self, world, *flags):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.ranks = [
            subprocess.Popen(
                command("--batch", "1", "--world", str(world), "--rank", str(rank), "--rendezvous", folder, *flags),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())
            for rank in range(world)
        ]

    def train(self, world):
        self.start(world, "--steps", "3")
        outputs = [rank.communicate(timeout=240)[0] for rank in self.ranks]
        for rank, output in zip(self.ranks, outputs):
            self.assertEqual(rank.returncode, 0, output)
        for output in outputs[1:]:
            self.assertNotIn("final ", output)
        return final(outputs[0])[0]

    def test_four_ranks_give_the_same_bits_twice_and_not_those_of_two(self):
        four = self.train(4)
        self.assertEqual(four, self.train(4))
        self.assertNotEqual(four, self.train(2))

    def test_rank_killed_without_locum_ends_the_others_with_the_reason(self):
        self.start(3, "--steps", "1000000")
        for line in self.ranks[0].stdout:
            if line.startswith("step 1 "):
                break
        self.ranks[2].kill()
        for rank in self.ranks[:2]:
            output = rank.communicate(timeout=240)[0]
            self.assertEqual(rank.returncode, 1, output)
            self.assertIn("the collective broke: all-reduce: ", output)


if __name__ == "__main__":
    GPT, TEXT = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
