/** Who has access to a database, and who administers it. */
import { useLayoutEffect, useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { useLoad } from '../../api/load.ts'
import { user } from '../../api/session.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { ErrorNotice, Notice, Skeleton } from '../../parts/notice.tsx'
import { Card } from '../../parts/page.tsx'
import { say } from '../../parts/toast.tsx'
import { hashOf } from '../../shell/hash.ts'
import { go, guardRoute } from '../../shell/route.ts'
import { en } from '../../strings/en.ts'
import { type Access, accessOf, isAdminOf, isSameAccess, removedFrom, securityOf } from './access-rules.ts'
import { ChoiceGroup } from './choice-group.tsx'
import type { DatabaseRow, Security } from './database-answers.ts'
import { readDatabase, readSecurity, writeSecurity } from './database-calls.ts'
import type { DatabasePartProps } from './database-part.ts'
import { NameList } from './name-list.tsx'
import './databases.css'

const texts = en.databases.access

export default function AccessPart({ database }: DatabasePartProps) {
  const { data, failure, reload } = useLoad(async (signal) => {
    const [row, security] = await Promise.all([
      readDatabase(database, signal),
      readSecurity(database, signal),
    ])
    return { row, security }
  }, database)
  if (data === undefined) {
    return failure === null ? (
      <Card>
        <Skeleton lines={8} />
      </Card>
    ) : (
      <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />
    )
  }
  return (
    <div class="stack">
      <AccessForm key={database} row={data.row} initial={data.security} onSaved={reload} />
      <Rights isHosted={data.row.owner !== undefined} />
    </div>
  )
}

interface AccessFormProps {
  readonly row: DatabaseRow
  readonly initial: Security
  readonly onSaved: () => void
}

function AccessForm({ row, initial, onSaved }: AccessFormProps) {
  // What was saved is known here: an answer that comes later must not undo what the user changes meanwhile.
  const [security, setSecurity] = useState(initial)
  const stored = accessOf(security)
  const [access, setAccess] = useState(stored)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const mayChange = row.role === 'admin'
  const isChanged = !isSameAccess(access, stored)
  const change = (some: Partial<Access>) => setAccess({ ...access, ...some })
  const save = async () => {
    const saved = securityOf(access, security)
    await writeSecurity(row.name, saved)
    setSecurity(saved)
    say(texts.saved)
    onSaved()
  }
  const discard = () => {
    setAccess(stored)
    setFailure(null)
  }
  useUnsavedGuard(isChanged)
  const submit = () => {
    setFailure(null)
    const effects = effectsOf(stored, access)
    if (effects.length > 0) {
      confirm({
        title: texts.confirmTitle(row.name),
        effects,
        undo: losesOwn(stored, access) ? texts.undoByAdmin : texts.undo,
        act: texts.save,
        run: save,
      })
      return
    }
    setBusy(true)
    save()
      .catch((error: unknown) => setFailure(asFailure(error)))
      .finally(() => setBusy(false))
  }
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault()
        submit()
      }}
    >
      {!mayChange && (
        <Notice tone="info" title={texts.mayNot}>
          <p>{texts.mayNotHelp}</p>
        </Notice>
      )}
      <Card title={texts.entry}>
        <ChoiceGroup
          legend={texts.entryLegend}
          value={access.entry}
          disabled={!mayChange}
          choices={(['admins', 'members', 'everyone'] as const).map((value) => ({
            value,
            text: en.databases.entries[value],
            hint: en.databases.entryHints[value],
          }))}
          onChange={(entry) => change({ entry })}
        />
        {access.entry === 'everyone' && (
          <Notice tone="warn" title={texts.publicTitle} isAnnounced>
            <p>{texts.publicWarning}</p>
          </Notice>
        )}
        {access.entry === 'members' && (
          <div class="grid">
            <NameList
              label={texts.memberNames}
              hint={texts.namesHint}
              names={access.memberNames}
              disabled={!mayChange}
              onChange={(memberNames) => change({ memberNames })}
            />
            <NameList
              label={texts.memberRoles}
              hint={texts.rolesHint}
              names={access.memberRoles}
              disabled={!mayChange}
              onChange={(memberRoles) => change({ memberRoles })}
            />
          </div>
        )}
      </Card>
      <Card title={texts.admins} lead={texts.adminsLead}>
        <div class="grid">
          <NameList
            label={texts.adminNames}
            hint={texts.adminNamesHint}
            names={access.adminNames}
            disabled={!mayChange}
            onChange={(adminNames) => change({ adminNames })}
          />
          <NameList
            label={texts.adminRoles}
            hint={texts.rolesHint}
            names={access.adminRoles}
            disabled={!mayChange}
            onChange={(adminRoles) => change({ adminRoles })}
          />
        </div>
      </Card>
      {isChanged && (
        <div class="save-bar">
          {failure !== null && <ErrorNotice failure={failure} title={texts.notSaved} />}
          <strong class="grow" role="status">
            {texts.unsaved}
          </strong>
          <Button disabled={isBusy} onClick={discard}>
            {texts.discard}
          </Button>
          <Button kind="primary" type="submit" isBusy={isBusy}>
            {texts.save}
          </Button>
        </div>
      )}
    </form>
  )
}

/** Who may lose access by the change, or gain it. */
function effectsOf(before: Access, after: Access): readonly string[] {
  const removed = removedFrom(before, after)
  return [
    ...(after.entry === 'everyone' && before.entry !== 'everyone' ? [texts.publicWarning] : []),
    ...(before.entry === 'everyone' && after.entry !== 'everyone' ? [texts.closedEffect] : []),
    ...(removed.length > 0 ? [texts.removedEffect(removed)] : []),
    ...(losesOwn(before, after) ? [texts.ownEffect] : []),
  ]
}

function losesOwn(before: Access, after: Access): boolean {
  const { value } = user
  return value !== null && isAdminOf(value, before) && !isAdminOf(value, after)
}

/** Asks before the page is left with unsaved changes. */
function useUnsavedGuard(isChanged: boolean): void {
  // Before the next event: a page whose changes were discarded can be left at once.
  useLayoutEffect(() => {
    if (!isChanged) return
    const remove = guardRoute(({ path, query }) => {
      confirm({
        title: texts.leaveTitle,
        effects: [texts.leaveEffect],
        undo: null,
        act: texts.leave,
        run: async () => {
          remove()
          go(hashOf(path, query))
        },
      })
      return false
    })
    return remove
  }, [isChanged])
}

/** Who may do what. */
function Rights({ isHosted }: { readonly isHosted: boolean }) {
  return (
    <Card title={texts.rights}>
      <dl class="rights">
        {texts.rightsOf(isHosted).map(([who, what]) => (
          <div key={who}>
            <dt>{who}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Card>
  )
}
