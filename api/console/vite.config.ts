import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The page is served under a policy that allows only its own origin, so nothing may be inlined: no data: fonts,
// no inline polyfill. `npm run dev` forwards API calls to a local berth server.
export default defineConfig({
  plugins: [svelte()],
  base: './', // relative: a proxy may serve the page under a path prefix
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    reportCompressedSize: false,
    chunkSizeWarningLimit: 600, // the LiveKit client, which is loaded with the page of a conference only
  },
  server: { proxy: { '/v1': 'http://127.0.0.1:8080' } },
});
