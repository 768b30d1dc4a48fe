-- Splits `brief`, what decisions use of a node; see write_brief in include settle. One field holds it: reading each would take a fifth of
-- a decision. `out` is the reason why the node cannot be chosen, '' when it can.
generation, base, active, max, out, each, seen, class =
  string.match(brief, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)$')
