// The fields of a template's form, and their conversion into the variables of a submission.
import type { TemplateView, VariableView } from './openapi';

/** maxTextBytes is the API's limit of one text in UTF-8. A test of the page submits texts of this size and above. */
export const maxTextBytes = 200_000;

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

/** A file that is uploaded when it is chosen: an image, or a document whose text the server extracts. */
export interface Upload {
  name: string;
  kind: 'image' | 'document';
  /** Empty until the server has stored it. */
  assetId: string;
  /** Absent after a reload of the page, which keeps only what the server has stored. */
  file?: File;
}

/** A file or an inserted text that a field did not take, and its size in bytes. */
export interface Refusal {
  kind: 'oversize' | 'empty' | 'unknown' | 'textOnly';
  size: number;
}

/** The content of a field. An upload takes precedence over text. */
export interface Value {
  text: string;
  upload: Upload | null;
  /** What the user put in last was refused. The content is older, so it is not submitted until the user has reacted. */
  refused?: Refusal;
}

export const emptyValue = (): Value => ({ text: '', upload: null });
export const isFilled = (v: Value | undefined) => v !== undefined && (v.upload !== null || v.text.trim() !== '');

/** takes reports whether a field takes an upload of this kind. */
export const takes = (f: Field, kind: Upload['kind']) => (kind === 'image' ? f.image !== '' : f.documents);

/** bytesOf returns the size of a text in UTF-8. */
export const bytesOf = (text: string) => new TextEncoder().encode(text).length;

/** measured returns the size of a text that may be near its limit, and 0 for a shorter one without counting it. */
export function measured(text: string): number {
  const near = 0.8 * maxTextBytes;
  if (text.length * 3 < near) return 0; // a UTF-16 unit has at most three bytes in UTF-8
  const size = bytesOf(text);
  return size < near ? 0 : size;
}

/** The kind of a file by its content: a document is what the server reads or refuses by its name, and unknown what is neither that nor text. */
export type Kind = Upload['kind'] | 'text' | 'empty' | 'oversize' | 'unknown';

const images = [/^\x89PNG\r\n\x1a\n/, /^\xff\xd8\xff/, /^RIFF[^]{4}WEBP/];

/** How a file begins that is written as text, but is more than that: PDF, HTML or XML, RTF, a message. */
const documents = /^PK\x03\x04|^[^]{0,1000}%PDF-\d|^\s*(?:<|\{\\rtf|%!PS-Adobe-|data:[^,\s]*;base64,)|^(?:[!-9;-~]+:.*\r?\n(?:[ \t].*\r?\n)*)*(?:mime-version|message-id|received|return-path|delivered-to|content-transfer-encoding):/i;

/** How binary files begin that the server knows: UTF-16, Office, images, archives, audio, video. */
const binaries = /^(?:\xff\xfe|\xfe\xff|\xd0\xcf\x11\xe0|[^]{4}ftyp|GIF8|II[*+]|MM\0|BM|RIFF|Rar!|7z\xbc|\x1f\x8b|BZh|\xfd7z|ID3|\xff[\xe0-\xfb]|OggS|fLaC|\x1aE\xdf\xa3|bplist|MZ|\x7fELF)/;

/** inspect returns what a file is, by its first bytes and not by its name, and the text of a text file. */
export async function inspect(file: Blob): Promise<{ kind: Kind; text: string }> {
  const head = new Uint8Array(await file.slice(0, 4096).arrayBuffer());
  if (head.length === 0) return { kind: 'empty', text: '' };
  const start = String.fromCharCode(...head).replace(/^\xef\xbb\xbf/, '');
  if (images.some((pattern) => pattern.test(start))) return { kind: 'image', text: '' };
  if (documents.test(start) || binaries.test(start) && head.includes(0)) return { kind: 'document', text: '' };
  if (head.includes(0) && !isUTF16(head)) return { kind: 'unknown', text: '' };
  if (!isUTF8(head)) return { kind: 'document', text: '' };
  if (file.size > maxTextBytes) return { kind: 'oversize', text: '' };
  const all = await file.arrayBuffer();
  return isUTF8(all, false) ? { kind: 'text', text: new TextDecoder().decode(all) } : { kind: 'document', text: '' };
}

/** isUTF16 reports whether all NULs are in the higher bytes of characters. */
const isUTF16 = (head: Uint8Array) => [0, 1].some((parity) => head.every((b, i) => b !== 0 || i % 2 === parity));

/** isUTF8 reports whether bytes are a text in UTF-8, or the beginning of one. */
function isUTF8(bytes: AllowSharedBufferSource, more = true): boolean {
  try {
    return !new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: more }).includes('\0');
  } catch {
    return false;
  }
}

/** accepted returns the file types that a field's file picker offers. */
export const accepted = (f: Field) =>
  [...(f.text ? ['.txt', '.md', '.text', 'text/*'] : []), ...(f.documents ? ['.pdf', '.docx', '.odt', '.html', '.htm', '.xml', '.eml'] : []),
    ...(f.image ? ['image/png', 'image/jpeg', 'image/webp'] : [])].join(',');

const takesImage = (v: VariableView) => v.kinds.some((k) => k.startsWith('image'));
const takesText = (v: VariableView) => v.kinds.some((k) => k.startsWith('text'));
const takesUpload = (v: VariableView) => v.kinds.includes('text_asset');

/** fieldsOf returns the form fields of a template, in the API's order. */
export function fieldsOf(t: TemplateView): Field[] {
  const out: Field[] = [];
  const groups = new Set<string>();
  for (const v of t.variables) {
    if (v.group && groups.has(v.group)) continue;
    const members = v.group ? t.variables.filter((m) => m.group === v.group) : [v];
    if (v.group) groups.add(v.group);
    const written = members.find(takesText);
    const text = written?.name ?? '';
    const image = members.find(takesImage)?.name ?? '';
    out.push({ key: text || image, text, image, documents: written !== undefined && takesUpload(written), required: Boolean(v.group) || v.required });
  }
  return out;
}

/** fieldAt returns the key of the field for a problem's path, such as variables.jobImage or variables.resume.assetId. */
export function fieldAt(t: TemplateView, path: string): string {
  const name = path.replace(/^variables\./, '').split('.')[0];
  const v = t.variables.find((m) => m.name === name);
  if (!v) return name;
  const mates = v.group ? t.variables.filter((m) => m.group === v.group).map((m) => m.name) : [name];
  return fieldsOf(t).find((f) => mates.includes(f.key))?.key ?? name;
}

/** variablesOf returns the variables of the submission; upload returns the asset id of a file that is not stored yet. */
export async function variablesOf(
  fields: Field[], values: Record<string, Value>, upload: (u: Upload, key: string) => Promise<string>,
): Promise<Record<string, string | { assetId: string }>> {
  const out: Record<string, string | { assetId: string }> = {};
  for (const f of fields) {
    const v = values[f.key];
    if (!v) continue;
    if (v.upload && takes(f, v.upload.kind)) {
      out[v.upload.kind === 'image' ? f.image : f.text] = { assetId: v.upload.assetId || await upload(v.upload, f.key) };
    } else if (f.text && v.text.trim() !== '') {
      out[f.text] = v.text;
    }
  }
  return out;
}
