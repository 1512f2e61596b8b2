import { defineConfig, type Plugin } from 'vite'

/**
 * What the built page may do: run its own scripts, show its own pictures and those from its database, and connect to
 * the server that the user has chosen. So a note cannot load anything from other servers.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' blob:",
  'connect-src http: https:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ')

function contentSecurityPolicy(): Plugin {
  const meta = { tag: 'meta', attrs: { 'http-equiv': 'Content-Security-Policy', content: POLICY } }
  return {
    name: 'content-security-policy',
    // The development server inserts scripts and styles into the page.
    apply: 'build',
    transformIndexHtml: () => [{ ...meta, injectTo: 'head-prepend' }],
  }
}

export default defineConfig({
  // It may be served from any folder.
  base: './',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  // PouchDB uses Node's `global`.
  define: { global: 'globalThis' },
  // The policy does not allow `data:` URLs.
  build: { target: 'es2022', assetsInlineLimit: 0 },
  server: { host: '127.0.0.1', port: 5173, strictPort: true },
  plugins: [contentSecurityPolicy()],
})
