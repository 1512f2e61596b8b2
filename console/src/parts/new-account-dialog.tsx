import { useState } from 'preact/hooks'
import { asFailure, type Failure } from '../api/failure.ts'
import { en } from '../strings/en.ts'
import { Dialog, DialogButtons } from './dialog.tsx'
import { PasswordField, passwordFault, TextField } from './field.tsx'
import { ErrorNotice } from './notice.tsx'

interface NewAccountDialogProps {
  /** Of the dialog, and of the button that adds the account. */
  readonly title: string
  readonly lead: string
  /** The fault of a name, as a sentence; null: none. */
  readonly nameFault: (name: string) => string | null
  /** @throws Failure with 409 if there is one of this name */
  readonly create: (name: string, password: string) => Promise<void>
  readonly onAdded: (name: string) => void
  readonly onClose: () => void
}

/** Asks for the name and the password of a new account, in single and in hosted mode. */
export function NewAccountDialog({
  title,
  lead,
  nameFault,
  create,
  onAdded,
  onClose,
}: NewAccountDialogProps) {
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const [faults, setFaults] = useState<{ readonly name?: string | null; readonly password?: string | null }>(
    {},
  )
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const submit = () => {
    const found = { name: nameFault(name), password: passwordFault(password) }
    setFaults(found)
    setFailure(null)
    if (found.name !== null || found.password !== null || isBusy) return
    setBusy(true)
    create(name, password).then(
      () => onAdded(name),
      (error: unknown) => {
        const why = asFailure(error)
        if (why.status === 409) setFaults({ name: en.common.nameTaken })
        else setFailure(why)
        setBusy(false)
      },
    )
  }
  const footer = <DialogButtons act={title} isBusy={isBusy} onCancel={onClose} />
  return (
    <Dialog title={title} footer={footer} onClose={onClose} onSubmit={submit}>
      <p>{lead}</p>
      <TextField label={en.common.name} value={name} onChange={setName} error={faults.name} isCode />
      <PasswordField
        label={en.common.password}
        value={password}
        onChange={setPassword}
        error={faults.password}
        hint={en.common.passwordHint}
        isNew
      />
      {failure !== null && <ErrorNotice failure={failure} />}
    </Dialog>
  )
}
