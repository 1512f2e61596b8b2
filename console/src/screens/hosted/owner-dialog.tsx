/** Who owns a database: its size counts for the owner, who may delete it. */
import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../../api/failure.ts'
import { Button } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { Dialog, DialogButtons } from '../../parts/dialog.tsx'
import { TextField } from '../../parts/field.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import { readOwner, setOwner } from './tenant-calls.ts'

const texts = en.hosted

interface OwnerDialogProps {
  readonly account: string
  readonly onClose: () => void
  readonly onChanged: () => void
}

/** Makes the account the owner of an existing database. */
export function OwnerDialog({ account, onClose, onChanged }: OwnerDialogProps) {
  const [database, setDatabase] = useState('')
  const [other, setOther] = useState<string | null>(null)
  const [fault, setFault] = useState<string | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const give = async () => {
    const owner = await readOwner(database)
    if (owner !== null && owner !== account && other !== owner) {
      // Asked again, with the name of the present owner.
      setOther(owner)
      return
    }
    await setOwner(database, account)
    say(texts.given(database, account))
    onChanged()
    onClose()
  }
  const submit = () => {
    setFailure(null)
    setFault(database === '' ? texts.noDatabaseName : null)
    if (database === '' || isBusy) return
    setBusy(true)
    give()
      .catch((error: unknown) => setFailure(asFailure(error)))
      .finally(() => setBusy(false))
  }
  const footer = (
    <DialogButtons act={other === null ? texts.give : texts.giveAnyway} isBusy={isBusy} onCancel={onClose} />
  )
  return (
    <Dialog title={texts.giveTitle(account)} footer={footer} onClose={onClose} onSubmit={submit}>
      <p>{texts.giveLead}</p>
      <TextField
        label={texts.database}
        value={database}
        onChange={(next) => {
          setDatabase(next)
          setOther(null)
        }}
        error={fault}
        isCode
      />
      {other !== null && (
        <Notice tone="warn" isAnnounced>
          <p>{texts.ownedBy(database, other)}</p>
        </Notice>
      )}
      {failure !== null && <ErrorNotice failure={failure} />}
    </Dialog>
  )
}

interface ReleaseProps {
  readonly account: string
  readonly database: string
  readonly onChanged: () => void
}

/** Takes the ownership of a database from the account. */
export function Release({ account, database, onChanged }: ReleaseProps) {
  const ask = () =>
    confirm({
      title: texts.releaseTitle(database, account),
      effects: [texts.releaseEffect(account)],
      undo: texts.releaseUndo,
      act: texts.release,
      run: async () => {
        await setOwner(database, null)
        say(texts.released(database))
        onChanged()
      },
    })
  return (
    <Button isSmall onClick={ask}>
      {texts.release}
      <span class="for-readers"> {database}</span>
    </Button>
  )
}
