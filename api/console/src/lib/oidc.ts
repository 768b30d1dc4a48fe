// Sign-in with an OpenID Connect provider: the authorization code flow with PKCE (RFC 7636) of a public client. The tokens come from
// the provider's token endpoint over TLS, so that the API alone verifies their signatures (OpenID Connect Core 1.0, 3.1.3.7).

import { home, own } from './home';
import type { SignIn } from './openapi';

/** What the server states about the provider. */
export type Provider = Required<SignIn>;

/** The tokens of a sign-in: the one for the API, and the one for its renewal, if the provider gives any. */
export interface Tokens {
  token: string;
  refresh: string;
}

/** Why a sign-in failed: a word of i18n, and what the provider stated. */
export class SignInError extends Error {
  constructor(
    readonly word: 'oidcUnreachable' | 'oidcState' | 'oidcRefused' | 'oidcInsecure',
    readonly detail = '',
  ) {
    super(`${word}: ${detail}`);
  }
}

interface Endpoints {
  authorization_endpoint: string;
  token_endpoint: string;
}

/** What a sign-in needs when the provider sends the browser back. */
interface Pending {
  state: string;
  nonce: string;
  verifier: string;
  /** The view to return to. */
  hash: string;
}

const pendingKey = () => own('berth.oidc');

const base64url = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** The challenge of a verifier, with the method S256. */
export async function challenge(verifier: string): Promise<string> {
  return base64url(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier))));
}

/** The claims of a JSON Web Token; none if it is not one. */
export function claims(token: string): Record<string, unknown> {
  try {
    const part = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    const text = new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0)));
    const doc: unknown = JSON.parse(text);
    return doc !== null && typeof doc === 'object' ? (doc as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** When a token expires, in ms since 1970; 0 if it does not state it. */
export const expiry = (token: string) => Number(claims(token).exp ?? 0) * 1000;

/** Whether two issuers are one. A slash at the end makes no difference, as for the API: settings and providers often differ by it. */
const sameIssuer = (a: unknown, b: string) => typeof a === 'string' && a.replace(/\/$/, '') === b.replace(/\/$/, '');

/** Whether an ID token belongs to this sign-in. */
export function belongs(idToken: string, p: Provider, nonce: string): boolean {
  const c = claims(idToken);
  const audience = Array.isArray(c.aud) ? c.aud : [c.aud];
  return sameIssuer(c.iss, p.issuer) && c.nonce === nonce && audience.includes(p.clientId);
}

async function discover(p: Provider): Promise<Endpoints> {
  let doc: Partial<Endpoints> & { issuer?: string };
  try {
    const res = await fetch(`${p.issuer.replace(/\/$/, '')}/.well-known/openid-configuration`);
    doc = await res.json();
  } catch {
    throw new SignInError('oidcUnreachable', p.issuer);
  }
  if (!sameIssuer(doc.issuer, p.issuer) || !doc.authorization_endpoint || !doc.token_endpoint) {
    throw new SignInError('oidcRefused', `discovery document of ${p.issuer}`);
  }
  return doc as Endpoints;
}

/** Sends the browser to the provider. */
export async function begin(p: Provider, hash: string) {
  if (!globalThis.crypto?.subtle) throw new SignInError('oidcInsecure');
  const endpoints = await discover(p);
  const pending: Pending = { state: random(), nonce: random(), verifier: random(), hash };
  sessionStorage.setItem(pendingKey(), JSON.stringify(pending));
  const url = new URL(endpoints.authorization_endpoint);
  for (const [name, value] of Object.entries({
    ...p.parameters, response_type: 'code', client_id: p.clientId, redirect_uri: home(), state: pending.state, nonce: pending.nonce,
    code_challenge: await challenge(pending.verifier), code_challenge_method: 'S256',
  })) url.searchParams.set(name, value);
  location.assign(url);
}

/** Whether the address is one to which a provider has sent the browser back. */
export const returned = (query: URLSearchParams) => query.has('state') && (query.has('code') || query.has('error'));

/** Completes a sign-in with the query of the address, and returns the view to return to. */
export async function finish(p: Provider, query: URLSearchParams): Promise<Tokens & { hash: string }> {
  const text = sessionStorage.getItem(pendingKey());
  sessionStorage.removeItem(pendingKey());
  const pending: Pending | null = text ? JSON.parse(text) : null;
  if (!pending || pending.state !== query.get('state')) throw new SignInError('oidcState');
  if (query.has('error')) throw new SignInError('oidcRefused', query.get('error_description') ?? query.get('error') ?? '');
  const doc = await exchange(p, {
    grant_type: 'authorization_code', code: query.get('code') ?? '', redirect_uri: home(), code_verifier: pending.verifier,
  });
  if (!belongs(doc.id_token ?? '', p, pending.nonce)) throw new SignInError('oidcState');
  return { ...tokensOf(p, doc), hash: pending.hash };
}

/** Returns new tokens for those of a sign-in. */
export async function renew(p: Provider, refresh: string): Promise<Tokens> {
  const renewed = tokensOf(p, await exchange(p, { grant_type: 'refresh_token', refresh_token: refresh }));
  return { ...renewed, refresh: renewed.refresh || refresh };
}

interface Response { access_token?: string; id_token?: string; refresh_token?: string; error?: string; error_description?: string }

function tokensOf(p: Provider, doc: Response): Tokens {
  const token = (p.token === 'id' ? doc.id_token : doc.access_token) ?? '';
  if (!token) throw new SignInError('oidcRefused', `no ${p.token}_token`);
  return { token, refresh: doc.refresh_token ?? '' };
}

async function exchange(p: Provider, form: Record<string, string>): Promise<Response> {
  const endpoints = await discover(p);
  let doc: Response;
  let ok: boolean;
  try {
    const res = await fetch(endpoints.token_endpoint, { method: 'POST', body: new URLSearchParams({ ...form, client_id: p.clientId }) });
    ok = res.ok;
    doc = await res.json();
  } catch {
    throw new SignInError('oidcUnreachable', p.issuer);
  }
  if (!ok) throw new SignInError('oidcRefused', doc.error_description ?? doc.error ?? '');
  return doc;
}
