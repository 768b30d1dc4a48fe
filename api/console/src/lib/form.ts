// The fields of a template's form, and their conversion into the variables of a submission.
import type { Template, TemplateVariable } from './openapi';

/** maxTextBytes is the API's limit of one text in UTF-8. A test of the page submits texts of this size and above. */
export const maxTextBytes = 200_000;

/** One field of the form: a variable, or several of a group that one field can take, as text or as an image. */
export interface Field {
  key: string;
  /** The variable that takes text; empty if only an image is accepted. */
  text: string;
  /** The variable that takes an image; empty if only text is accepted. */
  image: string;
  /** Whether the text may be an upload. */
  documents: boolean;
  /** Whether the text usually is a line or a few. */
  brief: boolean;
  required: boolean;
  /** The group of which the user chooses one field; empty if there is nothing to choose. */
  group: string;
  /** The variable with the texts of the field: label, help and default. */
  of: TemplateVariable;
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

const takesImage = (v: TemplateVariable) => v.kind === 'image';

function field(of: TemplateVariable, image: string, group = ''): Field {
  const text = takesImage(of) ? '' : of.name;
  return {
    key: of.name, text, image: text ? image : of.name, documents: text !== '' && of.kinds.includes('text_asset'), brief: of.kind === 'text',
    required: Boolean(of.group) || of.required, group, of,
  };
}

/**
 * fieldsOf returns the form fields of a template, in its order. The text of a group and its first image are one field, because a user has the
 * same thing in one form or the other. Several texts, or several images without a text, are a choice.
 */
export function fieldsOf(t: Template): Field[] {
  const groups = new Set<string>();
  return t.variables.flatMap((v) => {
    if (!v.group) return [field(v, '')];
    if (groups.has(v.group)) return [];
    groups.add(v.group);
    const members = t.variables.filter((m) => m.group === v.group);
    const texts = members.filter((m) => !takesImage(m));
    const images = members.filter(takesImage);
    const choices = texts.length ? texts : images;
    return choices.map((m, i) => field(m, i === 0 ? (images[0]?.name ?? '') : '', choices.length > 1 ? v.group : ''));
  });
}

/** chosenOf returns the fields of a form without those that the user has not chosen: of a group, the chosen one, else that which is filled, else the first. */
export function chosenOf(fields: Field[], chosen: Record<string, string>, filled: (key: string) => boolean): Field[] {
  return fields.filter((f) => {
    if (!f.group) return true;
    const mates = fields.filter((m) => m.group === f.group);
    return f === (mates.find((m) => m.key === chosen[f.group]) ?? mates.find((m) => filled(m.key)) ?? mates[0]);
  });
}

/** fieldAt returns the key of the field for a problem's path, such as variables.photo or variables.letter.assetId. */
export function fieldAt(t: Template, path: string): string {
  const name = path.replace(/^variables\./, '').split('.')[0];
  const fields = fieldsOf(t);
  const found = fields.find((f) => f.text === name || f.image === name);
  if (found) return found.key;
  const group = t.variables.find((m) => m.name === name)?.group;
  return fields.find((f) => group && f.of.group === group)?.key ?? name;
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
