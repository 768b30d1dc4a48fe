// Where the page is served: at the root of a host, or under a path prefix that a proxy adds. The page takes this from its own address, so
// that no server has to know the prefix, and every address that it uses begins with it.

/** The address of the page without query and view. It ends with a slash. */
export const home = () => new URL('.', document.baseURI).href;

/** The address of a path of the API, such as /v1/tasks. Other addresses remain as they are. */
export const at = (path: string) => (path.startsWith('/') && globalThis.document ? home() + path.slice(1) : path);

/** The address of the signalling proxy of conferences. */
export const signalling = () => home().replace(/^http/, 'ws').replace(/\/$/, '');

/** The name of a stored value: pages under other prefixes of the host share the storage of the browser. */
export const own = (name: string) => (globalThis.document && new URL(home()).pathname !== '/' ? `${name} ${new URL(home()).pathname}` : name);
