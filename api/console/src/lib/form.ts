// Which fields a template's form has, and what the filled fields become in a submission.
import type { Template, Variable } from './api';

/** One field of the form: a variable, or a group of which one is given, as text or as a picture. */
export interface Field {
  key: string;
  /** The variable that takes text; empty when only a picture will do. */
  text: string;
  /** The variable that takes a picture; empty when only text will do. */
  image: string;
  required: boolean;
}

/** What a person put into a field. A picture beats text. */
export interface Value {
  text: string;
  image: File | null;
}

export const emptyValue = (): Value => ({ text: '', image: null });
export const isFilled = (v: Value | undefined) => v !== undefined && (v.image !== null || v.text.trim() !== '');

const takesImage = (v: Variable) => v.kinds.some((k) => k.startsWith('image'));
const takesText = (v: Variable) => v.kinds.some((k) => k.startsWith('text'));

/** fieldsOf is the form of a template, in the API's order. */
export function fieldsOf(t: Template): Field[] {
  const out: Field[] = [];
  const groups = new Set<string>();
  for (const v of t.variables) {
    if (v.group && groups.has(v.group)) continue;
    const members = v.group ? t.variables.filter((m) => m.group === v.group) : [v];
    if (v.group) groups.add(v.group);
    const text = members.find(takesText)?.name ?? '';
    const image = members.find(takesImage)?.name ?? '';
    out.push({ key: text || image, text, image, required: v.group !== '' || v.required });
  }
  return out;
}

/** fieldAt finds the field that a problem's path names, such as variables.jobImage or variables.resume.assetId. */
export function fieldAt(t: Template, path: string): string {
  const name = path.replace(/^variables\./, '').split('.')[0];
  const v = t.variables.find((m) => m.name === name);
  if (!v) return name;
  const mates = v.group ? t.variables.filter((m) => m.group === v.group).map((m) => m.name) : [name];
  return fieldsOf(t).find((f) => mates.includes(f.key))?.key ?? name;
}

/** variablesOf makes the submission's variables; upload stores a picture and answers its asset id. */
export async function variablesOf(
  fields: Field[], values: Record<string, Value>, upload: (f: File, key: string) => Promise<string>,
): Promise<Record<string, string | { assetId: string }>> {
  const out: Record<string, string | { assetId: string }> = {};
  for (const f of fields) {
    const v = values[f.key];
    if (!v) continue;
    if (v.image && f.image) out[f.image] = { assetId: await upload(v.image, f.key) };
    else if (f.text && v.text.trim() !== '') out[f.text] = v.text;
  }
  return out;
}
