/** Calls about a database, the server and its accounts. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { count, type Family, filled, flag, get, json, oddBody, query, typed } from './family.ts'

const USER = '/_users/org.couchdb.user:{user}'

const lists = (c: Choices): unknown =>
  c.mostly<unknown>(
    [
      { names: ['{user}'], roles: [] },
      { names: [], roles: [] },
      { names: [], roles: ['r'] },
      { roles: ['_admin'] },
    ],
    [1, [], { names: 1 }, { names: [1] }, {}, { roles: {} }],
    0.15,
  )

function account(c: Choices): Step {
  switch (c.weighted({ put: 5, get: 3, delete: 1, session: 4, login: 4, own: 3 })) {
    case 'put':
      return json('PUT', USER, {
        ...(c.chance(0.7) && { _rev: '{rev:account}' }),
        ...c.mostly<object>(
          [
            { name: '{user}', password: 'p', roles: [], type: 'user' },
            { name: '{user}', password: 'p2', roles: ['r'], type: 'user' },
          ],
          [
            { name: '{user}', roles: [], type: 'user' },
            { name: 'other', password: 'p', roles: [], type: 'user' },
            { name: '{user}', password: 'p', type: 'user' },
            { name: '{user}', password: 'p', roles: ['_x'], type: 'user' },
            { name: '{user}', password: 'p', roles: [1], type: 'user' },
            {},
            { name: '{user}', password: 'p', roles: 'x', type: 'user' },
            { name: '{user}', password: '', roles: [], type: 'user' },
            { name: '{user}', password: 'p', roles: [], type: 'x' },
          ],
          0.25,
        ),
      })
    case 'get':
      return get(USER)
    case 'delete':
      return { method: 'DELETE', path: `${USER}?rev={rev:account}` }
    case 'session':
      return {
        ...get(`/_session${query(c, { basic: flag }, 1)}`),
        auth: c.pick([null, '{user}:p', '{user}:p2', '{user}:wrong']),
      }
    case 'login':
      return c.chance(0.5)
        ? {
            ...json(
              'POST',
              `/_session${query(c, { next: () => '/x' }, 1)}`,
              c.mostly<object>(
                [
                  { name: '{user}', password: 'p' },
                  { name: '{user}', password: 'p2' },
                  { name: '{user}', password: 'wrong' },
                ],
                [{}, { name: 1 }, { name: '{user}' }, { password: 'p' }, { name: '{user}', password: 1 }],
                0.2,
              ),
            ),
            auth: null,
          }
        : {
            method: 'POST',
            path: '/_session',
            auth: null,
            headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
            body: c.pick([
              'name={user}&password=p',
              'name={user}&password=',
              'name={user}',
              '',
              'x',
              'password=p',
            ]),
          }
    case 'own':
      return {
        ...c.pick<Step>([
          get(USER),
          get('/{db}'),
          get('/{db}/d1'),
          json('PUT', '/{db}/own', {}),
          get('/_all_dbs'),
          get('/_users/_all_docs'),
          get('/{db}/_security'),
          json('PUT', '/{db}/_security', {}),
          json('PUT', '/{db}/_design/own', {}),
          { method: 'DELETE', path: '/{db}' },
          get('/_users/org.couchdb.user:other'),
          json('POST', '/{db}/_compact', ''),
          json('PUT', '/{other}', ''),
          get('/_active_tasks'),
          get('/_node/_local/_config/x'),
          { method: 'DELETE', path: '/_session' },
        ]),
        auth: c.pick([null, '{user}:p', '{user}:p', '{user}:p2']),
      }
  }
}

const CONFIG = '/_node/_local/_config'

function configuration(c: Choices): Step {
  const place = `${CONFIG}/diff-{user}${c.chance(0.9) ? `/${c.pick(['a', 'b'])}` : ''}`
  switch (c.weighted({ get: 3, put: 3, delete: 2, reload: 1, odd: 1 })) {
    case 'get':
      return get(place)
    case 'put':
      return {
        method: 'PUT',
        path: place,
        body: c.mostly(['"x"', '"1"', '""'], ['1', 'x', '', '{}', 'null', '["a"]', 'true'], 0.3),
        headers: typed(c),
      }
    case 'delete':
      return { method: 'DELETE', path: place }
    case 'reload':
      return c.pick<Step>([json('POST', `${CONFIG}/_reload`, ''), get(`${CONFIG}/_reload`)])
    case 'odd':
      return c.pick<Step>([
        get('/_node/no-such-node/_config'),
        get('/_node/_local/_config/diff-none/'),
        get('/_node/_local'),
        get('/_node'),
        get('/_node/_local/none'),
        json('POST', CONFIG, ''),
        { method: 'PUT', path: CONFIG },
      ])
  }
}

function database(c: Choices): Step {
  switch (
    c.weighted({ put: 4, delete: 2, info: 3, security: 6, limits: 3, compact: 3, dbs: 4, uuids: 4, odd: 6 })
  ) {
    case 'put':
      return {
        method: 'PUT',
        path: `/${c.mostly(['{other}', '{db}'], ['Upper', '_x', '1a', 'a%20b', '%C3%A9', 'a.b', '_users', '{db}%2Fx%2F', '%7B%7D'], 0.15)}${query(c, { q: count, n: count, partitioned: flag, placement: (c) => c.pick(['x', '']), engine: (c) => c.pick(['couch', 'x', '']) }, 2)}`,
        ...(c.chance(0.1) && { body: '{}', headers: typed(c) }),
      }
    case 'delete':
      return { method: 'DELETE', path: `/{other}${query(c, { rev: () => '1-a' }, 1)}` }
    case 'info':
      return {
        method: c.pick(['GET', 'HEAD', 'POST']),
        path: `/${c.pick(['{db}', '{other}', 'diff-none', '{db}/'])}`,
      }
    case 'security':
      return c.chance(0.4)
        ? get('/{db}/_security')
        : json(
            'PUT',
            '/{db}/_security',
            c.mostly<unknown>(
              [
                { admins: lists(c), members: lists(c) },
                { members: lists(c) },
                { x: 1, admins: lists(c) },
                {},
              ],
              [[], 1, 'x', '{', '', null],
              0.1,
            ),
            typed(c),
          )
    case 'limits':
      return c.pick<Step>([
        get('/{db}/_revs_limit'),
        json('PUT', '/{db}/_revs_limit', '10'),
        json('PUT', '/{db}/_revs_limit', '"x"'),
        json('POST', '/{db}/_ensure_full_commit', ''),
        json('POST', '/{db}/_ensure_full_commit', '{}', { 'Content-Type': 'text/plain' }),
      ])
    case 'compact':
      return c.pick<Step>([
        json('POST', '/{db}/_compact', ''),
        json('POST', '/{db}/_compact', '{}'),
        json('POST', '/{db}/_compact/d', ''),
        json('POST', '/{db}/_compact/none', ''),
        json('POST', '/{db}/_view_cleanup', ''),
        { method: 'POST', path: '/{db}/_compact' },
        { method: 'POST', path: '/{db}/_view_cleanup' },
      ])
    case 'dbs':
      return c.pick<Step>([
        get(
          `/_all_dbs?${query(c, { limit: count, skip: count, descending: flag, inclusive_end: flag }).replace('?', '')}&${c.pick(['startkey=%22{db}%22&endkey=%22{db}z%22', 'key=%22{db}%22', 'start_key=%22{db}%22&end_key=%22{db}%22'])}`,
        ),
        json(
          'POST',
          '/_dbs_info',
          c.mostly<unknown>(
            [{ keys: ['{db}', 'diff-none'] }, { keys: [] }],
            [{}, { keys: 1 }, [], { keys: [1] }],
            0.3,
          ),
        ),
        get('/_dbs_info?startkey=%22{db}%22&endkey=%22{db}%22'),
      ])
    case 'uuids':
      return get(
        `/_uuids${query(c, { count: (c) => c.mostly(['1', '3'], ['0', '-1', 'x', '', '1001', '1.5', '"1"'], 0.5) }, 1)}`,
      )
    case 'odd':
      return c.pick<Step>([
        get('/'),
        get('/_up'),
        { method: 'HEAD', path: '/' },
        { method: 'HEAD', path: '/{db}/none' },
        get('/_membership'),
        get('/_active_tasks'),
        get('/_session'),
        get('/_scheduler/jobs/none'),
        get('/_scheduler/docs/_replicator/none'),
        get('/_scheduler/docs?states=x'),
        get('/_scheduler/none'),
        get('/_replicate'),
        json('POST', '/_replicate', oddBody(c)),
        get('/_none'),
        get('/diff-none/x'),
        get('/{db}/_none'),
        get('/{db}/d1/none'),
        get('/_cluster_setup'),
        get('/_db_updates?timeout=1&limit=0'),
        get('/favicon.ico'),
      ])
  }
}

function step(c: Choices): Step {
  switch (c.weighted({ account: 40, configuration: 15, database: 45 })) {
    case 'account':
      return account(c)
    case 'configuration':
      return configuration(c)
    case 'database':
      return database(c)
  }
}

export const server: Family = {
  begin: (c) => [...filled(c), json('PUT', USER, { name: '{user}', password: 'p', roles: [], type: 'user' })],
  step,
}
