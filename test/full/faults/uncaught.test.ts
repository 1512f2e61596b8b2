/** Uncaught faults: neither the process nor a thread ends without a log line. */
import t from 'tap'
import { startServerProcess } from '../../faults/server-process.ts'

t.test(
  'an unhandled rejection ends the server with a fatal line, and acknowledged writes stay',
  async (t) => {
    const server = await startServerProcess(t, {
      preload: new URL('../../faults/faulty-process.mjs', import.meta.url),
    })
    await server.ask('PUT', '/notes')
    for (let n = 0; n < 20; n++) {
      t.match(await server.ask('PUT', `/notes/note-${n}`, { n }), { status: 201 })
    }
    const ended = server.ended()
    process.kill(server.pid(), 'SIGUSR2')
    const { code, stderr } = await ended
    t.equal(code, 1)
    t.match(stderr, /stops after an internal error: Error: a rejection that nobody handles\n +at /)
    t.match(
      server.log().filter(({ level }) => level === 'fatal'),
      [{ msg: /uncaught error/, err: { message: 'a rejection that nobody handles', stack: /at / } }],
    )
    await server.start()
    t.match(await server.ask('GET', '/notes'), { json: { doc_count: 20 } })
    t.match(await server.stop(), { code: 0 })
  },
)
