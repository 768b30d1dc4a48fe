// The fields of a template: which are shown, what is wrong with what was entered, and the uploads of files. What was entered is the draft's.
import { tick } from 'svelte';
import { Problem, type Api } from './api';
import { draft } from './draft.svelte';
import { explain, reasonOf, refusalOf, type Message } from './explain';
import { bytesOf, chosenOf, emptyValue, fieldAt, fieldsOf, isFilled, maxTextBytes, takes, variablesOf, type Field, type Upload } from './form';
import { i18n } from './i18n.svelte';
import type { Template } from './openapi';
import { session } from './session.svelte';
import { bestOf } from './template';

export class Inputs {
  errors = $state<Record<string, Message | null>>({});
  /** Whether the optional fields are shown. */
  more = $state(false);
  /** A file is uploaded before the request that needs it. */
  storing = $state(false);
  readonly values = draft.values;

  template = $derived.by(() => this.of());
  all = $derived(this.template ? fieldsOf(this.template) : []);
  fields = $derived(chosenOf(this.all, draft.chosen, (key) => isFilled(this.values[key])));
  needed = $derived(this.fields.filter((f) => f.required));
  extra = $derived(this.fields.filter((f) => !f.required));
  filled = $derived(this.fields.some((f) => isFilled(this.values[f.key])));
  /** How many fields have to be corrected. */
  marked = $derived(Object.values(this.errors).filter(Boolean).length);

  /** The languages of an answer; a template whose prompts and texts are the same in all has none. */
  locales = $derived(this.template?.locales ?? []);
  locale = $derived(this.locales.includes(draft.locale) ? draft.locale : (bestOf(i18n.lang, this.locales) ?? this.locales[0] ?? ''));

  private uploads = new WeakMap<File, Promise<string>>();
  private uploading: { key: string; file: Upload } | null = null;

  /** of: the template, once it was passed to prepare. */
  constructor(private api: Api, private of: () => Template | undefined) {}

  /** Makes the fields of templates. What was entered in one of the same name remains. */
  prepare(list: readonly Template[]) {
    for (const f of list.flatMap(fieldsOf)) {
      // A variable may have the name of something that every object has.
      if (!Object.hasOwn(this.values, f.key)) this.values[f.key] = emptyValue();
      if (!Object.hasOwn(this.errors, f.key)) this.errors[f.key] = null;
    }
  }

  /** Shows the optional fields if one of them has something: of a draft, or of a task that is edited. */
  reveal() {
    this.more ||= this.extra.some((f) => isFilled(this.values[f.key]));
  }

  forgive() {
    for (const key of Object.keys(this.errors)) this.errors[key] = null;
  }

  /** Marks the fields that cannot be submitted, and reports whether there is none. */
  check(): boolean {
    this.forgive();
    for (const f of this.fields) this.errors[f.key] = this.faultOf(f);
    return this.marked === 0;
  }

  /** Returns why a field cannot be submitted, null if it can. */
  private faultOf(f: Field): Message | null {
    const { upload: file, text, refused } = this.values[f.key];
    if (refused) return () => refusalOf(refused, i18n);
    if (f.required && !isFilled(this.values[f.key])) return () => i18n.t.required;
    if (file) return takes(f, file.kind) ? null : () => i18n.t.textOnly;
    const size = text.length * 3 > maxTextBytes ? bytesOf(text) : 0;
    return size > maxTextBytes ? () => i18n.tooLong(size) : null;
  }

  /** Uploads a file, once, and returns its asset id. */
  private upload(u: Upload, key: string): Promise<string> {
    const file = u.file!; // a draft without it has the asset id
    const running = this.uploads.get(file);
    if (running) return running;
    const stored = this.api.upload(file).then((id) => {
      if (this.values[key].upload?.file === file) this.values[key].upload.assetId = id;
      return id;
    });
    this.uploads.set(file, stored);
    stored.catch(() => this.uploads.delete(file)); // the next attempt uploads it again
    return stored;
  }

  /** Uploads the file that was chosen in a field, and shows there why that failed. */
  async store(key: string) {
    const chosen = this.values[key].upload!;
    try {
      await this.upload(chosen, key);
    } catch (err) {
      if (!session.noteRefusal(err) && this.values[key].upload?.file === chosen.file) this.errors[key] = () => uploadProblem(err, chosen);
    }
  }

  /** Returns the variables as the API takes them; files that are not stored yet are uploaded before. */
  async variables() {
    this.uploading = null;
    try {
      return await variablesOf(this.fields, this.values, async (file, key) => {
        this.storing = true;
        this.uploading = { key, file };
        const id = await this.upload(file, key);
        this.uploading = null;
        return id;
      });
    } finally {
      this.storing = false;
    }
  }

  /** Shows a failure at the field that it is about, and reports whether there is one. uploaded: it was an upload that failed. */
  explain(err: unknown, of: Template): { shown: boolean; uploaded: boolean } {
    const [failed, p] = [this.uploading, err instanceof Problem ? err : null];
    this.uploading = null;
    const key = failed?.key ?? (p?.field ? fieldAt(of, p.field) : '');
    const uploaded = failed !== null;
    if (!Object.hasOwn(this.errors, key)) return { shown: false, uploaded };
    const f = fieldsOf(of).find((x) => x.key === key);
    if (f?.group) draft.chosen[f.group] = key;
    this.errors[key] = failed ? () => uploadProblem(err, failed.file) : () => reasonOf(err, i18n);
    return { shown: true, uploaded };
  }

  /** Moves the focus to the first field that has to be corrected. */
  async focus() {
    if (this.extra.some((f) => this.errors[f.key])) this.more = true;
    await tick();
    document.querySelector<HTMLElement>('.sheet.bad :is(textarea, figure), [aria-invalid="true"]')?.focus();
  }
}

/** A server that refuses a body may close the connection before the browser has its answer. */
const uploadProblem = (err: unknown, u: Upload) =>
  err instanceof Problem && err.status === 0 ? i18n.fill('uploadLost', i18n.size(u.file?.size ?? 0)) : explain(err, i18n);
