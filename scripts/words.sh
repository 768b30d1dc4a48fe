#!/usr/bin/env bash
# Find words that the project avoids (scripts/words.txt) and requirement ids outside tests.
#
#   scripts/words.sh                 list each place with its replacement; exit 1 if there is one
#   scripts/words.sh --count [REV]   print the number of places per word, in the work tree or in a commit
#   scripts/words.sh PATH...         check only these paths
set -euo pipefail
cd "$(dirname "$0")/.."

mode=list rev=
if [ "${1:-}" = --count ]; then
  mode=count rev=${2:-}
  set --
fi

# Not searched: recorded histories, prompts, example texts, the lock files, and the two places that list the words.
files() {
  if [ -n "$rev" ]; then git ls-tree -r --name-only "$rev"; else git ls-files --cached --others --exclude-standard -- "$@"; fi |
    grep -E '\.(go|lua|md|ya?ml|svelte|ts|mjs|css|sh|sql)$|(^|/)(Makefile|Dockerfile)$' |
    grep -vE '(^|/)(testdata|prompts|node_modules|dist)/|^examples/(posting|resume)|/src/lib/example\.ts$|-lock\.(json|ya?ml)$' |
    grep -vE '^scripts/words\.(sh|txt)$|^docs/contributing\.md$|^docs/requirements\.md$|^README\.zh-CN\.md$'
}

files "$@" | WORDS=scripts/words.txt REV=$rev MODE=$mode exec perl -w -e '
  use strict;
  my ($mode, $rev) = @ENV{qw(MODE REV)};
  my (@words, @allowed);
  open(my $list, "<", $ENV{WORDS}) or die "$ENV{WORDS}: $!\n";
  while (<$list>) {
    chomp;
    next if /^#/ || /^\s*$/;
    if (/^allow\t([^\t]+)\t(.+)$/) {
      push @allowed, [$1, qr/$2/];
      next;
    }
    my ($re, $use) = split /\t/, $_, 2;
    push @words, [$re, qr/$re/i, $use, 0];
  }
  # A requirement id in parentheses, as in "(L12)" or "(C1, C21)", or anywhere in a comment, in code that is not a test.
  my $id = qr/(?:A(?:1[01]|[1-9])|L(?:1[0-3]|[1-9])|T(?:[12]\d|[1-9])|C(?:1\d|2[0-3]|[1-9])|S(?:1[01]|[1-9])|X[1-9]|B(?:1[0-2]|[1-9])|P(?:1\d|[1-9]))(?![\w.])/;
  my $ids = ["requirement ids outside tests", qr/\((?:[^()]*, )?$id(?:[-,;:][^()]*)?\)|(?:\/\/|\/\*|^ *--|--\s|#\s).*\b$id/, "say what it means; ids are for tests and docs\/requirements.md", 0];
  my $found = 0;
  while (my $file = <STDIN>) {
    chomp $file;
    my $in;
    if ($rev) { open($in, "-|", "git", "show", "$rev:$file") or die } else { open($in, "<", $file) or next }
    my $test = $file =~ /_test\.go$|^tests\/|\/tests\/|^internal\/test/;
    my $code = $file =~ /\.(go|lua|ts|svelte|mjs|ya?ml|sql|sh)$|Makefile$/;
    my @permitted = map { $_->[1] } grep { index($file, $_->[0]) == 0 } @allowed;
    while (my $line = <$in>) {
      $line =~ s/$_//g for @permitted;
      for my $w (@words, ($code && !$test) ? $ids : ()) {
        while ($line =~ /$w->[1]/g) {
          $w->[3]++; $found++;
          my $hit = length $& > 40 ? "..." . substr($&, -20) : $&;
          print "$file:$.: \"$hit\" -> $w->[2]\n" if $mode eq "list";
        }
      }
    }
    close $in;
  }
  if ($mode eq "count") {
    printf "%5d  %s\n", $_->[3], $_->[0] for sort { $b->[3] <=> $a->[3] } @words, $ids;
    printf "%5d  total\n", $found;
    exit 0;
  }
  exit($found > 0);
'
