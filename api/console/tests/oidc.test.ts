import { afterEach, describe, expect, it, vi } from 'vitest';
import { belongs, challenge, claims, expiry, finish, renew, returned, SignInError, type Provider } from '../src/lib/oidc';

const provider: Provider = { issuer: 'https://login.example/main', clientId: 'page', parameters: { scope: 'openid' }, token: 'access' };
const encode = (doc: unknown) =>
  btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(doc)))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
const jwt = (doc: unknown) => `${encode({ alg: 'RS256' })}.${encode(doc)}.signature`;

/** Answers the discovery document, then what the token endpoint answers. */
function network(answer: object, status = 200) {
  const sent: URLSearchParams[] = [];
  vi.stubGlobal('fetch', async (url: string, o?: RequestInit) => {
    if (String(url).endsWith('/.well-known/openid-configuration')) {
      return Response.json({ issuer: provider.issuer, authorization_endpoint: 'https://login.example/a', token_endpoint: 'https://login.example/t' });
    }
    sent.push(o?.body as URLSearchParams);
    return Response.json(answer, { status });
  });
  return sent;
}

function pending(state: string) {
  const kept = new Map([['berth.oidc /x/', JSON.stringify({ state, nonce: 'n', verifier: 'v', hash: '#/console' })]]);
  vi.stubGlobal('sessionStorage', { getItem: (k: string) => kept.get(k) ?? null, removeItem: (k: string) => kept.delete(k) });
  vi.stubGlobal('document', { baseURI: 'https://berth.example/x/?code=c&state=s#/console' });
  return kept;
}

afterEach(() => vi.unstubAllGlobals());

describe('oidc', () => {
  it('makes the challenge of RFC 7636, appendix B', async () => {
    expect(await challenge('dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk')).toBe('E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM');
  });

  it('reads the claims of a token, and none of anything else', () => {
    expect(claims(jwt({ sub: 'zoë' }))).toEqual({ sub: 'zoë' });
    expect(expiry(jwt({ exp: 5 }))).toBe(5000);
    for (const token of ['', 'opaque', 'a.b.c', `a.${encode(null)}.c`]) expect(expiry(token)).toBe(0);
  });

  it('accepts an ID token of this sign-in only', () => {
    // A slash at the end of an issuer makes no difference.
    expect(belongs(jwt({ iss: `${provider.issuer}/`, aud: 'page', nonce: 'n' }), provider, 'n')).toBe(true);
    expect(belongs(jwt({ iss: `${provider.issuer}/other`, aud: 'page', nonce: 'n' }), provider, 'n')).toBe(false);
    const good = { iss: provider.issuer, aud: ['page'], nonce: 'n' };
    expect(belongs(jwt(good), provider, 'n')).toBe(true);
    for (const bad of [{ nonce: 'other' }, { iss: 'https://evil.example' }, { aud: 'other' }, { nonce: undefined }]) {
      expect(belongs(jwt({ ...good, ...bad }), provider, 'n')).toBe(false);
    }
  });

  it('knows the address to which a provider returns', () => {
    for (const [query, is] of [['code=c&state=s', true], ['error=e&state=s', true], ['code=c', false], ['', false]] as const) {
      expect(returned(new URLSearchParams(query))).toBe(is);
    }
  });

  it('exchanges the code once, and returns to the view', async () => {
    const kept = pending('s');
    const sent = network({ access_token: 'a', id_token: jwt({ iss: provider.issuer, aud: 'page', nonce: 'n' }), refresh_token: 'r' });
    expect(await finish(provider, new URLSearchParams('code=c&state=s'))).toEqual({ token: 'a', refresh: 'r', hash: '#/console' });
    expect(Object.fromEntries(sent[0])).toEqual({
      grant_type: 'authorization_code', code: 'c', redirect_uri: 'https://berth.example/x/', code_verifier: 'v', client_id: 'page',
    });
    expect(kept.size).toBe(0);
  });

  it.each([
    ['another state', 'code=c&state=other', {}, 200, 'oidcState'],
    ['an error of the provider', 'error=access_denied&state=s', {}, 200, 'oidcRefused'],
    ['a refused code', 'code=c&state=s', { error: 'invalid_grant' }, 400, 'oidcRefused'],
    ['an ID token with another nonce', 'code=c&state=s', { access_token: 'a', id_token: jwt({ iss: provider.issuer, aud: 'page', nonce: 'x' }) }, 200, 'oidcState'],
    ['no access token', 'code=c&state=s', { id_token: jwt({ iss: provider.issuer, aud: 'page', nonce: 'n' }) }, 200, 'oidcRefused'],
  ])('refuses %s', async (_, query, answer, status, word) => {
    pending('s');
    network(answer, status);
    const err = await finish(provider, new URLSearchParams(query)).catch((e) => e);
    expect(err).toBeInstanceOf(SignInError);
    expect(err.word).toBe(word);
  });

  it('keeps a refresh token that is not replaced', async () => {
    network({ access_token: 'b' });
    expect(await renew(provider, 'r')).toEqual({ token: 'b', refresh: 'r' });
  });
});
