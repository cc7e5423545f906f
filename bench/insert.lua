-- The statement of the workload `insert` for sysbench: a prepared insert of the same row, with 128 random letters.
local template = string.rep("@", 128)

function thread_init()
   con = sysbench.sql.driver():connect()
   stmt = con:prepare("INSERT INTO load_insert (data) VALUES (?)")
   data = stmt:bind_create(sysbench.sql.type.CHAR, 128)
   stmt:bind_param(data)
end

function event()
   data:set_rand_str(template)
   stmt:execute()
end

function thread_done()
   stmt:close()
   con:disconnect()
end
