// The refusal of a form's input, which is shown at the field that the server names, and otherwise by the form.
import { getContext, setContext } from 'svelte';

export interface Refusals {
  /** Returns why a field was refused, '' if it was not. The form shows what no field has asked for. */
  of: (field: string) => string;
}

const key = Symbol('refusals');

export const offerRefusals = (r: Refusals) => setContext(key, r);
export const refusals = () => getContext<Refusals>(key);
