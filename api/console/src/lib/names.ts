// Names that users chose, within texts of the page. Markup isolates them with <bdi>; these are for places without markup.

/** The scripts that are written from right to left, and the characters that set this direction. */
const rightToLeft = /[\u0590-\u08ff\u200f\u202b\u2067\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** Returns a name that does not change the direction of the text around it. */
export const isolated = (name: string) => (rightToLeft.test(name) ? `\u2068${name}\u2069` : name);

/** Returns the first character that is seen, with its marks and joined parts, as a capital. */
export function initial(name: string): string {
  for (const { segment } of new Intl.Segmenter().segment(name)) {
    if (/[^\p{White_Space}\p{Control}\p{Format}\p{Default_Ignorable_Code_Point}\u2800]/u.test(segment)) return segment.toUpperCase();
  }
  return '?';
}
