import type { Plugin } from 'vite'

const MODULE = /[ \t]*<script type="module" crossorigin src="([^"]+)"><\/script>\n/
const PRELOAD = /[ \t]*<link rel="modulepreload" crossorigin href="([^"]+)">\n/g

/**
 * Has the built page start by a short script, whose digest is in the page's policy (src/http/routes/console-routes.ts). It
 * allows scripts and styles of the page's own folder alone: the rest of the origin has what databases store. The server
 * cannot name the folder, since a proxy may have removed a prefix from the path.
 */
export function startScript(): Plugin {
  return {
    name: 'start-script',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler(html) {
        const [, main] = MODULE.exec(html) ?? []
        if (main === undefined) throw new Error('The page has no script.')
        const ahead = [...html.matchAll(PRELOAD)].map(([, address]) => address)
        const script = `<script>(${start})(${JSON.stringify(main)}, ${JSON.stringify(ahead)})</script>`
        return html.replace(PRELOAD, '').replace(MODULE, () => `    ${script}\n`)
      },
    },
  }
}

/** Runs in the browser, so that it uses nothing from outside. An address has no host, which may be an IPv6 address. */
const start = `function (main, ahead) {
  const add = (name, properties) => document.head.append(Object.assign(document.createElement(name), properties))
  const folder = new URL('.', location).pathname.replace(/[;,]/g, encodeURIComponent)
  for (const from of ["'self'", '*:*' + folder]) {
    add('meta', { httpEquiv: 'Content-Security-Policy', content: 'script-src ' + from + '; style-src ' + from })
  }
  for (const href of ahead) add('link', { rel: 'modulepreload', crossOrigin: '', href })
  add('script', { type: 'module', crossOrigin: '', src: main })
}`
