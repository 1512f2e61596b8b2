/** The self-hosting guide's commands, as they stand in it, and what people get wrong with them. */
import t, { type Test } from 'tap'
import { freePort } from '../cli/child.ts'
import { startTestServer } from '../helpers/server.ts'
import { build, killHard, type Printed, served, sh } from './curl-shell.ts'

const OK = '{"ok":true}\n'
const NOT_ADMIN = '{"error":"unauthorized","reason":"You are not a server admin."}\n'
const WRONG_PASSWORD =
  '{"error":"unauthorized","reason":"Name or password is incorrect. You are not a server admin."}\n'
const WRONG_CREDENTIALS = '{"error":"unauthorized","reason":"Name or password is incorrect."}\n'
const NOT_MEMBER = '{"error":"unauthorized","reason":"You are not authorized to access this db."}\n'

type Step = readonly [command: string, status: number, body: string | RegExp]

async function follow(t: Test, port: number, steps: readonly Step[]): Promise<void> {
  for (const [command, status, body] of steps) checkAnswer(t, await sh(command, port), command, status, body)
}

function checkAnswer(
  t: Test,
  printed: Printed,
  command: string,
  status: number,
  body: string | RegExp,
): void {
  t.equal(printed.status, status, command)
  if (typeof body === 'string') t.equal(printed.body, body, command)
  else t.match(printed.body, body, command)
}

/** Who is who once the guide has been followed. */
const SECURED: readonly Step[] = [
  ['curl -X PUT http://127.0.0.1:5984/somedatabase', 401, NOT_ADMIN],
  ['curl -X PUT http://anna:wrong@127.0.0.1:5984/somedatabase', 401, WRONG_PASSWORD],
  ['curl -X PUT http://bob:secret@127.0.0.1:5984/somedatabase', 401, WRONG_PASSWORD],
  ['curl http://127.0.0.1:5984/_all_dbs', 401, NOT_ADMIN],
  [`curl -X PUT http://127.0.0.1:5984/_config/admins/eve -d '"mine"'`, 401, NOT_ADMIN],
  ['curl http://127.0.0.1:5984/my-notes', 401, NOT_MEMBER],
  ['curl http://127.0.0.1:5984/_up', 200, /^\{"status":"ok"/],
]

t.test('the self-hosting guide works as it stands, and its effects outlive a kill -9', async (t) => {
  await build(t)
  const port = await freePort()
  const dataDir = t.testdir()
  const first = await served(t, port, dataDir)
  await follow(t, port, [
    ['curl -X PUT http://127.0.0.1:5984/my-notes', 201, OK],
    ['curl -X GET http://127.0.0.1:5984/_all_dbs', 200, '["_users","my-notes"]\n'],
    [`curl -X PUT http://127.0.0.1:5984/_config/admins/anna -d '"secret"'`, 200, '""\n'],
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/_security -d '{"admins":{"names":["anna"]}}'`,
      200,
      OK,
    ],
    ...SECURED,
    ['curl -X PUT http://anna:secret@127.0.0.1:5984/somedatabase', 201, OK],
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/note:1 -d '{"title":"kept"}'`,
      201,
      /^\{"ok":true/,
    ],
  ])
  await killHard(first)
  const second = await served(t, port, dataDir)
  await follow(t, port, [
    ['curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes', 412, /^\{"error":"file_exists"/],
    ['curl -X GET http://anna:secret@127.0.0.1:5984/_all_dbs', 200, '["_users","my-notes","somedatabase"]\n'],
    ['curl http://anna:secret@127.0.0.1:5984/my-notes/_security', 200, '{"admins":{"names":["anna"]}}\n'],
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/_security -d '{"admins":{"names":["anna"]}}'`,
      200,
      OK,
    ],
    ...SECURED,
    ['curl -X PUT http://anna:secret@127.0.0.1:5984/another', 201, OK],
    ['curl http://anna:secret@127.0.0.1:5984/my-notes/note:1', 200, /"title":"kept"\}\n$/],
    // The old value is the hash, since there is an anna by now.
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/_config/admins/anna -d '"new"'`,
      200,
      /^"-pbkdf2:sha256-/,
    ],
    ['curl http://anna:secret@127.0.0.1:5984/my-notes', 401, WRONG_CREDENTIALS],
    ['curl http://anna:new@127.0.0.1:5984/my-notes', 200, /"db_name":"my-notes"/],
  ])
  second.process.kill('SIGTERM')
  t.equal((await second.ended).code, 0)
})

t.test('a password that is no JSON string makes no admin, and the server stays open', async (t) => {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  const bodies = [
    'secret',
    '5',
    `'""'`,
    `'" "'`,
    'null',
    'true',
    '[]',
    `'["secret"]'`,
    `'{"a":1}'`,
    `''`,
    `'"secret'`,
  ]
  for (const body of bodies) {
    for (const path of ['_config', '_node/_local/_config']) {
      await follow(t, port, [
        [
          `curl -X PUT http://127.0.0.1:5984/${path}/admins/anna -d ${body}`,
          400,
          /^\{"error":"bad_request","reason":"/,
        ],
      ])
    }
  }
  await follow(t, port, [
    ['curl http://127.0.0.1:5984/_config/admins', 200, '{}\n'],
    ['curl -X PUT http://127.0.0.1:5984/open', 201, OK],
    ['curl http://anybody:anything@127.0.0.1:5984/_all_dbs', 200, '["_users","open"]\n'],
  ])
})

t.test("an admin's name is percent-decoded", async (t) => {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  await follow(t, port, [
    [`curl -X PUT http://127.0.0.1:5984/_config/admins/anna%20mar%C3%ADa -d '"pass word"'`, 200, '""\n'],
    [`curl -u 'anna maría:pass word' -X PUT http://127.0.0.1:5984/hers`, 201, OK],
    ['curl http://anna%20mar%C3%ADa:pass%20word@127.0.0.1:5984/_all_dbs', 200, '["_users","hers"]\n'],
    [
      `curl -u 'anna maría:pass word' http://127.0.0.1:5984/_config/admins`,
      200,
      /^\{"anna maría":"-pbkdf2:sha256-[^"]+"\}\n$/,
    ],
    [`curl -u 'anna%20maria:pass word' http://127.0.0.1:5984/_all_dbs`, 401, WRONG_CREDENTIALS],
    [
      `curl -u 'anna maría:pass word' -X PUT http://127.0.0.1:5984/_config/admins/a%2Fb -d '"x"'`,
      200,
      '""\n',
    ],
    ['curl -u a/b:x http://127.0.0.1:5984/_all_dbs', 200, '["_users","hers"]\n'],
  ])
})

/** What somebody may see of a database, by what its security object says of members. */
const MEMBERS: readonly [security: string | null, status: number, what: string][] = [
  [null, 401, 'a database without a security object is for server admins only'],
  ['{"admins":{"names":["anna"]}}', 401, 'one that does not mention members is closed'],
  ['{}', 401, 'an empty security object does not mention members'],
  ['{"members":{"names":[],"roles":[]}}', 200, 'empty lists are public'],
  ['{"members":{}}', 200, 'no lists are empty lists'],
  ['{"members":{"names":["bob"]}}', 401, 'a database with members is for members'],
  ['{"members":{"roles":["family"]}}', 401, 'a database with roles is for who has them'],
]

t.test('who gets in depends on what the security object says of members', async (t) => {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  await follow(t, port, [
    [`curl -X PUT http://127.0.0.1:5984/_config/admins/anna -d '"secret"'`, 200, '""\n'],
  ])
  for (const [n, [security, status, what]] of MEMBERS.entries()) {
    t.comment(what)
    const db = `db${n}`
    await follow(t, port, [[`curl -X PUT http://anna:secret@127.0.0.1:5984/${db}`, 201, OK]])
    if (security !== null) {
      await follow(t, port, [
        [`curl -X PUT http://anna:secret@127.0.0.1:5984/${db}/_security -d '${security}'`, 200, OK],
      ])
    }
    const seen = status === 200 ? /"total_rows":0/ : NOT_MEMBER
    await follow(t, port, [
      [`curl http://127.0.0.1:5984/${db}/_all_docs`, status, seen],
      [`curl http://anna:secret@127.0.0.1:5984/${db}/_all_docs`, 200, /"total_rows":0/],
      // Whoever shows a name must be known by it, also where nobody needs one. One that fails five times is locked out.
      [`curl http://stranger${n}:secret@127.0.0.1:5984/${db}/_all_docs`, 401, WRONG_CREDENTIALS],
      [`curl -X PUT http://127.0.0.1:5984/${db}/_security -d '{}'`, 401, /^\{"error":"unauthorized"/],
    ])
  }
})

t.test('a refused security object changes nothing', async (t) => {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  await follow(t, port, [
    ['curl -X PUT http://127.0.0.1:5984/db', 201, OK],
    [`curl -X PUT http://127.0.0.1:5984/db/_security -d '{"admins":{"names":["anna"]}}'`, 200, OK],
    [
      `curl -X PUT http://127.0.0.1:5984/db/_security -d '{"admins":{"names":"anna"}}'`,
      400,
      /^\{"error":"bad_request"/,
    ],
    [`curl -X PUT http://127.0.0.1:5984/db/_security -d '[]'`, 400, /^\{"error":"bad_request"/],
    [`curl -X PUT http://127.0.0.1:5984/db/_security -d 'x'`, 400, /^\{"error":"bad_request"/],
    ['curl http://127.0.0.1:5984/db/_security', 200, '{"admins":{"names":["anna"]}}\n'],
  ])
})
