import { expect, it } from 'vitest';
import { initial, isolated } from '../src/lib/names';

it.each([
  ['ann', 'A'], ['田中　太郎', '田'], ['\u2067דנה\u2069', 'ד'], ['👨\u200d👩\u200d👧\u200d👦 x', '👨\u200d👩\u200d👧\u200d👦'], ['क्\u200dषितिज', 'क्\u200dषि'], ['\u200e\u00a0élan', 'É'],
  ['\u1112\u1161\u11ab지민', '\u1112\u1161\u11ab'], ['𞤀𞤤𞤫', '𞤀'], ['', '?'], ['\u200d', '?'],
])('the initial of %j is %j', (name, letter) => expect(initial(name)).toBe(letter));

it('isolates only names that are written from right to left', () => {
  expect(isolated('שרה (CTO)')).toBe('\u2068שרה (CTO)\u2069');
  for (const name of ['محمد', '𞤀𞤤𞤫', 'ކާށިދޫ', 'a\u200fb']) expect(isolated(name)).toBe(`\u2068${name}\u2069`);
  for (const name of ['Ann', '田中', '👍🏽', '葛\u{e0100}城', 'Zoë']) expect(isolated(name)).toBe(name);
});
