import { mkdir, open } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { StartError, startFailureLine } from '../../src/config/start-error.ts'

const listenError = (port: number, host: string): Promise<unknown> =>
  new Promise((resolve) => createServer().on('error', resolve).listen(port, host))

t.test('what an operator is told, in one line each', async (t) => {
  const busy = createServer()
  await new Promise<void>((resolve) => busy.listen(0, '127.0.0.1', resolve))
  t.teardown(() => busy.close())
  const { port } = busy.address() as AddressInfo
  t.equal(
    startFailureLine(await listenError(port, '127.0.0.1')),
    `Port ${port} on 127.0.0.1 is already in use; stop the program that uses it, or choose another port with --port.`,
  )
  t.equal(
    startFailureLine(await listenError(0, '192.0.2.1')),
    'This machine does not have the address 192.0.2.1; choose one of its own with --bind.',
  )
  const folder = t.testdir({ file: '' })
  const notFolder = await mkdir(join(folder, 'file', 'data'), { recursive: true }).catch(
    (error: unknown) => error,
  )
  t.equal(
    startFailureLine(notFolder),
    `${join(folder, 'file', 'data')} cannot be a folder: a part of this path is a file.`,
  )
  const missing = await open(join(folder, 'missing')).catch((error: unknown) => error)
  t.match(startFailureLine(missing), /^settee cannot start: ENOENT/)
  t.equal(startFailureLine(new StartError('two\nlines')), 'two lines')
  t.equal(startFailureLine(new TypeError('x is not a function')), 'settee cannot start: x is not a function')
  t.equal(startFailureLine('thrown text'), 'settee cannot start: thrown text')
})

t.test('errors of the system that a test cannot provoke as root', (t) => {
  const error = (fields: object) => Object.assign(new Error('system error'), fields)
  const table: [fields: object, line: string][] = [
    [
      { code: 'EACCES', syscall: 'listen', address: '::', port: 80 },
      'Port 80 on :: is not allowed for this account; choose a port above 1023 with --port.',
    ],
    [
      { code: 'ENOTFOUND', syscall: 'getaddrinfo' },
      'This machine does not know the address given with --bind; choose one of its own.',
    ],
    [{ code: 'EMFILE', syscall: 'listen' }, 'settee cannot listen: system error'],
    [
      { code: 'EACCES', syscall: 'open', path: '/data/x' },
      '/data/x cannot be read or written by this account (EACCES); change its owner or its mode.',
    ],
    [{ code: 'EROFS', syscall: 'open', path: '/data/x' }, '/data/x is on a read-only file system.'],
    [{ code: 'ENOSPC', syscall: 'open', path: '/data/x' }, '/data/x cannot be written: the disk is full.'],
    [{ code: 'ENOSPC', syscall: 'write' }, 'The disk is full.'],
  ]
  for (const [fields, line] of table) t.equal(startFailureLine(error(fields)), line)
  t.end()
})
