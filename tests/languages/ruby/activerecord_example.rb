require "active_record"
require "json"

ActiveRecord::Base.establish_connection(ENV["URL"])

class Payment < ActiveRecord::Base
end

payment_id = "pay-1"
data = { amount: 42 }

# README: activerecord
