import type { Plugin } from 'vite'

const MODULE = /[ \t]*<script type="module" crossorigin src="([^"]+)"><\/script>\n/
const PRELOAD = /[ \t]*<link rel="modulepreload" crossorigin href="([^"]+)">\n/g

/**
 * Has the built page start by a short script, whose digest is in the page's policy (src/http/routes/console-routes.ts). It
 * allows scripts and styles of the page's own folder alone: the rest of the origin has what databases store. The server
 * cannot name the folder, since a proxy may have removed a prefix from the path. The attribute keeps Cloudflare's Rocket Loader
 * from changing the script.
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
        const script = `<script data-cfasync="false">(${start})(${JSON.stringify(main)}, ${JSON.stringify(ahead)})</script>`
        return html.replace(PRELOAD, '').replace(MODULE, () => `    ${script}\n`)
      },
    },
  }
}

/**
 * Runs in the browser, so that it uses nothing from outside. Chromium and Firefox take a path of any host, and WebKit takes the
 * path of a host with a name or an IPv4 address; none of them takes an IPv6 address.
 */
const start = `function (main, ahead) {
  const add = (name, properties) => document.head.append(Object.assign(document.createElement(name), properties))
  const folder = new URL('.', location).pathname.replace(/[;,]/g, encodeURIComponent)
  const own = '*:*' + folder + ' ' + location.origin + folder
  const limits = ["script-src 'self'", 'script-src ' + own]
  if (!location.hostname.startsWith('[')) limits.push('style-src ' + own)
  for (const content of limits) add('meta', { httpEquiv: 'Content-Security-Policy', content })
  for (const href of ahead) add('link', { rel: 'modulepreload', crossOrigin: '', href })
  add('script', { type: 'module', crossOrigin: '', src: main })
}`
