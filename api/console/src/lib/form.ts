// The fields of a template's form, and their conversion into the variables of a submission.
import type { Template, Variable } from './api';

/** One field of the form: a variable, or a group of variables of which one is given, as text or as an image. */
export interface Field {
  key: string;
  /** The variable that takes text; empty if only an image is accepted. */
  text: string;
  /** The variable that takes an image; empty if only text is accepted. */
  image: string;
  required: boolean;
}

/** The content of a field. An image takes precedence over text. */
export interface Value {
  text: string;
  image: File | null;
}

export const emptyValue = (): Value => ({ text: '', image: null });
export const isFilled = (v: Value | undefined) => v !== undefined && (v.image !== null || v.text.trim() !== '');

const takesImage = (v: Variable) => v.kinds.some((k) => k.startsWith('image'));
const takesText = (v: Variable) => v.kinds.some((k) => k.startsWith('text'));

/** fieldsOf returns the form fields of a template, in the API's order. */
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

/** fieldAt returns the key of the field for a problem's path, such as variables.jobImage or variables.resume.assetId. */
export function fieldAt(t: Template, path: string): string {
  const name = path.replace(/^variables\./, '').split('.')[0];
  const v = t.variables.find((m) => m.name === name);
  if (!v) return name;
  const mates = v.group ? t.variables.filter((m) => m.group === v.group).map((m) => m.name) : [name];
  return fieldsOf(t).find((f) => mates.includes(f.key))?.key ?? name;
}

/** variablesOf returns the variables of the submission; upload stores an image and returns its asset id. */
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
