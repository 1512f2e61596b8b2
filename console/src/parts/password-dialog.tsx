import { useState } from 'preact/hooks'
import { type Account, changePassword } from '../api/accounts.ts'
import { asFailure, type Failure } from '../api/failure.ts'
import { signIn, user } from '../api/session.ts'
import { en } from '../strings/en.ts'
import { Dialog, DialogButtons } from './dialog.tsx'
import { PasswordField, passwordFault } from './field.tsx'
import { ErrorNotice } from './notice.tsx'
import { say } from './toast.tsx'

const texts = en.devices

interface PasswordDialogProps {
  readonly account: Pick<Account, 'name' | 'isAdmin'>
  readonly onClose: () => void
  readonly onChanged?: () => void
}

export function PasswordDialog({ account, onClose, onChanged }: PasswordDialogProps) {
  const [password, setPassword] = useState('')
  const [fault, setFault] = useState<string | null>(null)
  const [failure, setFailure] = useState<Failure | null>(null)
  const [isBusy, setBusy] = useState(false)
  const change = async () => {
    await changePassword(account, password)
    // A new password ends the sessions of the account.
    if (user.value?.name === account.name) await signIn(account.name, password)
    say(texts.passwordChanged(account.name))
    onChanged?.()
    onClose()
  }
  const submit = () => {
    const found = passwordFault(password)
    setFault(found)
    setFailure(null)
    if (found !== null || isBusy) return
    setBusy(true)
    change().catch((error: unknown) => {
      setFailure(asFailure(error))
      setBusy(false)
    })
  }
  const footer = <DialogButtons act={texts.changePassword} isBusy={isBusy} onCancel={onClose} />
  return (
    <Dialog title={texts.passwordTitle(account.name)} footer={footer} onClose={onClose} onSubmit={submit}>
      <PasswordField
        label={texts.newPassword}
        value={password}
        onChange={setPassword}
        error={fault}
        hint={en.common.passwordHint}
        isNew
      />
      <p>{texts.passwordEffect}</p>
      {failure !== null && <ErrorNotice failure={failure} />}
    </Dialog>
  )
}
