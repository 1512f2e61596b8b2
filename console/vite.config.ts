import { defineConfig } from 'vite'
import { precompress } from './precompress.ts'
import { startScript } from './start-script.ts'

/** The server that the development page speaks to: `npm run console` beside a running settee. */
const SERVER = 'http://127.0.0.1:5984'

export default defineConfig({
  // The page may lie below a proxy's prefix, so all addresses in it are relative.
  base: './',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  // The policy of http/routes/console-routes.ts does not allow `data:` URLs.
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    license: { fileName: 'licenses.md' },
    // Compression takes most of the build, as it should.
    rolldownOptions: { checks: { pluginTimings: false } },
  },
  server: {
    host: '127.0.0.1',
    port: 5174,
    strictPort: true,
    // Calls of the page are relative to `../`, which is the root here.
    proxy: { '^/(?!src/|@|node_modules/|index\\.html$|$)': { target: SERVER } },
  },
  plugins: [startScript(), precompress()],
})
