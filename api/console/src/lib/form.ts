// The fields of a template's form, and their conversion into the variables of a submission.
import type { Template, Variable } from './api';

/** One field of the form: a variable, or a group of variables of which one is given, as text or as an image. */
export interface Field {
  key: string;
  /** The variable that takes text; empty if only an image is accepted. */
  text: string;
  /** The variable that takes an image; empty if only text is accepted. */
  image: string;
  /** Whether the text may be an upload. */
  documents: boolean;
  required: boolean;
}

/** The content of a field. A file, which is an image or a document, takes precedence over text. */
export interface Value {
  text: string;
  image: File | null;
  /** A PDF or DOCX file, whose text the server extracts. */
  document: File | null;
}

export const emptyValue = (): Value => ({ text: '', image: null, document: null });
export const isFilled = (v: Value | undefined) =>
  v !== undefined && (v.image !== null || v.document !== null || v.text.trim() !== '');

/** isDocument reports whether the server extracts the text of a file. */
export const isDocument = (f: File) => /\.(pdf|docx)$/i.test(f.name) || f.type === 'application/pdf';

/** accepted returns the file types that a field's file picker offers. */
export const accepted = (f: Field) =>
  [...(f.text ? ['.txt', '.md', '.text', 'text/*'] : []), ...(f.documents ? ['.pdf', '.docx'] : []),
    ...(f.image ? ['image/png', 'image/jpeg', 'image/webp'] : [])].join(',');

const takesImage = (v: Variable) => v.kinds.some((k) => k.startsWith('image'));
const takesText = (v: Variable) => v.kinds.some((k) => k.startsWith('text'));
const takesUpload = (v: Variable) => v.kinds.includes('text_asset');

/** fieldsOf returns the form fields of a template, in the API's order. */
export function fieldsOf(t: Template): Field[] {
  const out: Field[] = [];
  const groups = new Set<string>();
  for (const v of t.variables) {
    if (v.group && groups.has(v.group)) continue;
    const members = v.group ? t.variables.filter((m) => m.group === v.group) : [v];
    if (v.group) groups.add(v.group);
    const written = members.find(takesText);
    const text = written?.name ?? '';
    const image = members.find(takesImage)?.name ?? '';
    out.push({ key: text || image, text, image, documents: written !== undefined && takesUpload(written), required: v.group !== '' || v.required });
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

/** variablesOf returns the variables of the submission; upload stores a file and returns its asset id. */
export async function variablesOf(
  fields: Field[], values: Record<string, Value>, upload: (f: File, key: string) => Promise<string>,
): Promise<Record<string, string | { assetId: string }>> {
  const out: Record<string, string | { assetId: string }> = {};
  for (const f of fields) {
    const v = values[f.key];
    if (!v) continue;
    if (v.image && f.image) out[f.image] = { assetId: await upload(v.image, f.key) };
    else if (v.document && f.documents) out[f.text] = { assetId: await upload(v.document, f.key) };
    else if (f.text && v.text.trim() !== '') out[f.text] = v.text;
  }
  return out;
}
