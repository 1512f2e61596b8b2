import t from 'tap'
import { clientName } from '../../console/src/screens/devices/client-names.ts'

const WEBKIT = 'AppleWebKit/537.36 (KHTML, like Gecko)'

t.test('the app and the system of a device', async (t) => {
  const table: [userAgent: string, app: string | null, system: string | null][] = [
    [
      `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${WEBKIT} obsidian/1.8.9 Chrome/132.0.6834.210 Electron/34.3.0 Safari/537.36`,
      'Obsidian 1.8.9',
      'Windows',
    ],
    [
      `Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) ${WEBKIT} Inkdrop/5.10.0 Chrome/120.0.0.0`,
      'Inkdrop 5.10.0',
      'macOS',
    ],
    ['Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0', 'Firefox 128', 'Linux'],
    [
      `Mozilla/5.0 (Linux; Android 10; K) ${WEBKIT} Chrome/124.0.0.0 Mobile Safari/537.36`,
      'Chrome 124',
      'Android',
    ],
    [
      `Mozilla/5.0 (Linux; Android 14; Pixel 7; wv) ${WEBKIT} Version/4.0 Chrome/124.0.0.0 Mobile`,
      null,
      'Android',
    ],
    [
      'Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148',
      null,
      'iPhone',
    ],
    [
      `Mozilla/5.0 (Windows NT 10.0) ${WEBKIT} Chrome/120.0.0.0 Safari/537.36 Edg/120.0.0.0`,
      'Edge 120',
      'Windows',
    ],
    [
      'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15',
      'Safari 17',
      'macOS',
    ],
    ['CouchDB-Replicator/3.5.0', 'CouchDB 3.5', null],
    ['curl/8.5.0', 'curl 8.5', null],
    ['node', 'Node.js', null],
    ['PouchDB', 'PouchDB', null],
    ['rclone/v1.65', 'rclone v1.65', null],
    ['', null, null],
  ]
  for (const [userAgent, app, system] of table) t.same(clientName(userAgent), { app, system }, userAgent)
})
