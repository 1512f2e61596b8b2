/** Which app and which system a device uses, from the header User-Agent that it sends. */

export interface ClientName {
  /** With its version, such as `Firefox 128`; null: a browser or an app that does not say which. */
  readonly app: string | null
  /** null: not known. */
  readonly system: string | null
}

/** The first row that fits decides: apps based on a browser name the browser as well, and Edge names Chrome. */
const APPS: readonly (readonly [pattern: RegExp, name: string, versionParts: number])[] = [
  [/\bobsidian\/([\d.]+)/i, 'Obsidian', 3],
  [/\binkdrop\/([\d.]+)/i, 'Inkdrop', 3],
  [/\bCouchDB-Replicator\/([\d.]+)/, 'CouchDB', 2],
  [/\bsettee\/([\d.]+)/i, 'settee', 3],
  [/\bcouchbackup[^/]*\/([\d.]+)/, 'couchbackup', 2],
  [/\bnano\/([\d.]+)/, 'nano', 2],
  [/\bPouchDB\/?([\d.]*)/i, 'PouchDB', 2],
  [/\bcurl\/([\d.]+)/, 'curl', 2],
  [/\bpython-requests\/([\d.]+)/, 'Python', 2],
  [/\bnode-fetch\/([\d.]+)/, 'Node.js', 0],
  [/^(?:node|undici)(?:\/([\d.]+))?$/, 'Node.js', 0],
  [/\bokhttp\/([\d.]+)/, 'OkHttp', 1],
  [/\bCFNetwork\/([\d.]+)/, 'CFNetwork', 0],
  [/\bElectron\/([\d.]+)/, 'Electron', 1],
  [/\bEdgA?\/([\d.]+)/, 'Edge', 1],
  [/\bOPR\/([\d.]+)/, 'Opera', 1],
  [/\bSamsungBrowser\/([\d.]+)/, 'Samsung Internet', 1],
  [/\bFirefox\/([\d.]+)/, 'Firefox', 1],
  [/\bFxiOS\/([\d.]+)/, 'Firefox', 1],
  [/\bCriOS\/([\d.]+)/, 'Chrome', 1],
]

/** A page in an app on Android has a browser's name, and the mark `wv`. */
const EMBEDDED = /; wv\)/
const BROWSERS: typeof APPS = [
  [/\bChrome\/([\d.]+)/, 'Chrome', 1],
  [/\bVersion\/([\d.]+).*\bSafari\//, 'Safari', 1],
]

const SYSTEMS: readonly (readonly [pattern: RegExp, name: string])[] = [
  [/\biPhone\b/, 'iPhone'],
  [/\biPad\b/, 'iPad'],
  [/\bAndroid\b/, 'Android'],
  [/\bCrOS\b/, 'ChromeOS'],
  [/\bWindows\b/, 'Windows'],
  [/\bMac OS X\b|\bMacintosh\b|\bDarwin\//, 'macOS'],
  [/\bLinux\b/, 'Linux'],
]

export function clientName(userAgent: string): ClientName {
  const system = SYSTEMS.find(([pattern]) => pattern.test(userAgent))?.[1] ?? null
  const rows = EMBEDDED.test(userAgent) ? APPS : [...APPS, ...BROWSERS]
  for (const [pattern, name, versionParts] of rows) {
    const found = pattern.exec(userAgent)
    if (found === null) continue
    const version = (found[1] ?? '').split('.').slice(0, versionParts).filter(Boolean).join('.')
    return { app: version === '' ? name : `${name} ${version}`, system }
  }
  return { app: firstWord(userAgent), system }
}

/** An unknown program names itself first, while a browser begins with `Mozilla`. */
function firstWord(userAgent: string): string | null {
  const [word = ''] = userAgent.split(' ')
  return word === '' || word.startsWith('Mozilla/') ? null : word.replace('/', ' ').slice(0, 40)
}
