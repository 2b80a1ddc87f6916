import SQLiteSupport
import SalvorHost
import SalvorHostCommands
import StandardModules

countNoSQLiteMemory()
await Tool.run(
  modules: StandardModules.all, commands: HostCommands.all + [demoCommand, demoPlainSQLiteCommand])
